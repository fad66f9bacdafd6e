package fakerows_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakerows"
)

func TestRows(t *testing.T) {
	fakerows.Conform(t, func(t *testing.T, test func(*testing.T, fakerows.Host)) {
		synctest.Test(t, func(t *testing.T) {
			s := fakerows.New("cloud")
			n := 0
			test(t, fakerows.Host{
				Rows: s.As(func(do func() error) error { return do() }), Provider: "cloud",
				Thread: func(_ *testing.T, box string) string {
					n++
					id := fmt.Sprint("t", n)
					s.Thread(id, box)
					return id
				},
				Pass: func(_ *testing.T, d time.Duration) { time.Sleep(d) },
			})
		})
	})
}
