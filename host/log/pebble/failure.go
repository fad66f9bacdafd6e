package pebble

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"

	"arbe.0sk.ar/runner/host/log/engine"
)

// failure records whether and why a store has failed.
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
		f.log.Error("the log has failed: the process must end", "error", err)
		close(f.done)
	})
}

// failed returns the failure; nil if there is none.
func (f *failure) failed() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// halt records a failure and never returns. Pebble holds locks when it meets an error that it can't handle, and expects
// the process to end there. The goroutine stays until the process ends.
func (f *failure) halt(err error) {
	f.fail(err)
	select {}
}

// panicked records a panic as a failure, and logs its stack.
func (f *failure) panicked(reason any) {
	f.log.Error("the log panicked", "panic", reason, "stack", string(debug.Stack()))
	f.fail(fmt.Errorf("panic: %v", reason))
}

// within calls do, and returns early if the store fails meanwhile: do may then never return. A panic in do is a failure
// of the store.
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

// Failed is closed when the store fails for good. Calls that are running then may never return, their appends may be on
// disk or not, and new calls fail with engine.ErrFailed. Nothing more is written.
func (e *Engine) Failed() <-chan struct{} { return e.failure.done }

// Failure is an engine.ErrFailed with its cause; nil while the store works.
func (e *Engine) Failure() error { return e.failure.failed() }
