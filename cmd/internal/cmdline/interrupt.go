package cmdline

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// errInterrupted is the cause of an Exit by a signal.
var errInterrupted = errors.New("interrupted")

// UntilSignal returns a context that ends with the first INT or TERM. The cause of its end is an Exit with the status
// 128+n then. stop ends it and the watch for signals.
func UntilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	came, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(came, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		select {
		case sig := <-came:
			n, _ := sig.(syscall.Signal)
			cancel(&Exit{128 + int(n), errInterrupted})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
		signal.Stop(came)
	}
}
