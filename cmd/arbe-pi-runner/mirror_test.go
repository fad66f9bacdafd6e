package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
)

// A mirror gives up a minute after its last progress, however long it has taken so far.
func TestPersist(t *testing.T) {
	for _, tt := range []struct {
		name    string
		batches int // posted, 40 s each, before the server is away
		away    bool
		hangs   bool // a post to the server that is away gets no answer
		took    time.Duration
	}{
		{"a long file", 100, false, false, 4000 * time.Second},
		{"the server is away", 0, true, false, time.Minute},
		{"and hangs", 0, true, true, time.Minute},
		{"away in the middle of a long file", 100, true, false, 4060 * time.Second},
		{"hangs in the middle of a long file", 100, true, true, 4060 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, posted := time.Now(), 0
				var l limit
				err := persist(t.Context(), func(ctx context.Context) error {
					for ; posted < tt.batches; posted++ {
						select {
						case <-time.After(40 * time.Second):
							l.extend()
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					if tt.hangs {
						<-ctx.Done()
					}
					if tt.away {
						return errors.New("no answer")
					}
					return nil
				}, &l)
				var exit *cmdline.Exit
				switch failed := errors.As(err, &exit); {
				case failed != tt.away, failed && exit.Status != exitUndelivered:
					t.Errorf("ended with %v", err)
				case time.Since(began) != tt.took:
					t.Errorf("took %v, want %v", time.Since(began), tt.took)
				}
			})
		})
	}
}
