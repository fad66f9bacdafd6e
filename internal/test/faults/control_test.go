package faults_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// control is a measure of how busy the machine is while a table plays: the same small thing done again and again, a
// start of the runner's binary that prints its version. Limits on time are multiples of what it takes.
type control struct {
	mu      sync.Mutex
	samples []sample
	current time.Time // when the sample under way began; zero between two
}

// sample is one start of the control.
type sample struct{ began, ended time.Time }

// pause is the time between two samples: a few percent of a core go into them.
const pause = 200 * time.Millisecond

// newControl takes samples until the test ends. It returns after the first ones.
func newControl(t *testing.T) *control {
	t.Helper()
	c := &control{}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	for range 3 {
		c.take(t)
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.take(t)
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	return c
}

func (c *control) take(t *testing.T) {
	s := sample{began: time.Now()}
	c.mu.Lock()
	c.current = s.began
	c.mu.Unlock()
	if err := exec.Command(filepath.Join(bin, "arbe-pi-runner"), "version").Run(); err != nil {
		t.Error(err)
	}
	s.ended = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.samples, c.current = append(c.samples, s), time.Time{}
}

// slowness is how many times as long as the quickest sample the slowest one took that overlaps the time from then till
// now, the one under way included.
func (c *control) slowness(from time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	quickest, slowest := c.samples[0].ended.Sub(c.samples[0].began), time.Duration(0)
	if !c.current.IsZero() {
		slowest = time.Since(c.current)
	}
	for _, s := range c.samples {
		quickest = min(quickest, s.ended.Sub(s.began))
		if s.ended.After(from) {
			slowest = max(slowest, s.ended.Sub(s.began))
		}
	}
	return max(1, float64(slowest)/float64(quickest))
}
