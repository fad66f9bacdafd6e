package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
)

// A pause lasts for its time, or as long as its context.
func TestFor(t *testing.T) {
	for _, tt := range []struct {
		name           string
		d, limit, want time.Duration
		passed         bool
	}{
		{"all of it", time.Minute, time.Hour, time.Minute, true},
		{"the context ends first", time.Hour, time.Minute, time.Minute, false},
		{"none", 0, time.Minute, 0, true},
		{"the context has ended", time.Minute, 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				began := time.Now()
				passed := pause.For(ctx, tt.d)
				if took := time.Since(began); took != tt.want {
					t.Errorf("it lasted %v, want %v", took, tt.want)
				}
				if passed != tt.passed {
					t.Errorf("got %v", passed)
				}
			})
		})
	}
}
