package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// steps posts the steps of a launch: each when it has ended, and a long one every 30 s, so that a launch is never
// silent. A step that can't be posted does not fail the launch.
type steps struct {
	g     *launching
	every time.Duration

	mu   sync.Mutex
	next int
}

// stepTimeout bounds the post of one step.
const stepTimeout = 20 * time.Second

func newSteps(g *launching) *steps {
	run, _ := g.thread.fold.Run(g.Run)
	return &steps{g: g, every: cmp.Or(g.WaitEvery, 30*time.Second), next: run.Setups}
}

// do runs one step and posts it with its kind; it posts no step with the kind "".
func (s *steps) do(ctx context.Context, kind, name string, step func() error) error {
	began := time.Now()
	waiting, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for {
			select {
			case <-waiting.Done():
				return
			case <-tick.C:
				s.post(waiting, thread.StepWait, name, time.Since(began), nil)
			}
		}
	})
	err := step()
	if failed, is := errors.AsType[*sandbox.ExitError](err); is { // before it is cut: a part of a secret is not found
		failed.Output = s.g.redact.Text(failed.Output)
	}
	s.g.flush()
	stop()
	wg.Wait()
	if kind != "" {
		s.post(ctx, kind, name, time.Since(began), err)
	}
	return err
}

func (s *steps) post(ctx context.Context, kind, name string, took time.Duration, cause error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	p := thread.SetupStep{
		Signal:     s.g.signal(thread.SetupType(kind)),
		ExecID:     s.g.Exec,
		Name:       s.g.redact.Text(name),
		DurationMs: took.Milliseconds(),
	}
	if cause != nil {
		p.Error = s.g.redact.Text(cause.Error())
	}
	s.mu.Lock()
	id := fmt.Sprintf("%s.setup.%d", cmp.Or(s.g.Exec, s.g.Run), s.next)
	s.next++
	s.mu.Unlock()
	if err := s.g.post(ctx, s.g.entry(id, p)); err != nil && kind != thread.StepWait {
		s.g.progress("post the step %s: %v", name, err)
	}
}
