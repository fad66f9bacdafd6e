package control_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/control"
)

// A database that hangs holds up no caller beyond its own time, nor the next attempt.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opens, hangs := 0, true
		open := control.Once(func(ctx context.Context) (*control.DB, error) {
			if opens++; hangs {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return &control.DB{}, nil
		})
		began := time.Now()
		var callers sync.WaitGroup
		for _, wait := range []time.Duration{time.Second, time.Minute, time.Hour} {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				_, err := open(ctx)
				took := time.Since(began)
				if !errors.Is(err, context.DeadlineExceeded) || took > min(wait, 20*time.Second) {
					t.Errorf("after %s of %s: %v", took, wait, err)
				}
			})
		}
		callers.Wait()
		if opens != 1 {
			t.Errorf("opened %d times at the same time", opens)
		}
		hangs = false
		first, err := open(t.Context())
		check(t, err)
		if again := must(open(t.Context()))(t); again != first || opens != 2 {
			t.Errorf("opened %d times", opens)
		}
	})
}
