package pebble

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"arbe.0sk.ar/runner/host/log/engine"
)

// failure is whether and why a store has failed.
type failure struct {
	log  *slog.Logger
	once sync.Once
	done chan struct{} // closed by the first failure
	err  error         // set before done is closed
}

func newFailure(log *slog.Logger) *failure { return &failure{log: log, done: make(chan struct{})} }

// fail records the first failure.
func (f *failure) fail(err error) {
	f.once.Do(func() {
		f.err = fmt.Errorf("%w: %w", engine.ErrFailed, err)
		f.log.Error("the log has failed, and the process is to end", "error", err)
		close(f.done)
	})
}

// failed is the failure; nil while there is none.
func (f *failure) failed() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// halt records a failure and never returns. Pebble holds locks where it meets an error that it can't handle, and
// expects that the process ends there; the goroutine stays until it does.
func (f *failure) halt(err error) {
	f.fail(err)
	select {}
}

// panicked records a panic as a failure, with its stack in the log.
func (f *failure) panicked(reason any) {
	f.log.Error("the log panicked", "panic", reason, "stack", string(debug.Stack()))
	f.fail(fmt.Errorf("panic: %v", reason))
}

// within calls do, and returns early where the store fails meanwhile: do may then never return. A panic of do is a
// failure of the store.
func within[T any](f *failure, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				f.panicked(r)
			}
		}()
		v, err := do()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-f.done:
		var zero T
		return zero, f.err
	}
}

// Failed is Failer's.
func (p *Engine) Failed() <-chan struct{} { return p.failure.done }

// Failure is Failer's.
func (p *Engine) Failure() error { return p.failure.failed() }
