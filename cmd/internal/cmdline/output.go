package cmdline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// StatusOutput is the exit status of a program whose output could not be written (EX_IOERR).
const StatusOutput = 74

// Output is a program's stdout. It remembers the first write that failed, so that a command that checks none of its
// writes still fails: Run turns its exit status 0 into StatusOutput. A pipe that nobody reads any more is no failure.
// It is safe for concurrent use.
type Output struct {
	to io.Writer

	mu     sync.Mutex
	failed error
}

// NewOutput returns the Output that writes to w.
func NewOutput(w io.Writer) *Output { return &Output{to: w} }

func (o *Output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		o.mu.Lock()
		if o.failed == nil {
			o.failed = err
		}
		o.mu.Unlock()
	}
	return n, err
}

// Fd returns the file descriptor, for what asks whether it is a terminal.
func (o *Output) Fd() uintptr {
	if f, is := o.to.(*os.File); is {
		return f.Fd()
	}
	return ^uintptr(0)
}

// checked returns the error of a command, or that of its output where it failed by that alone.
func (o *Output) checked(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil || err != nil && !errors.Is(err, o.failed) {
		return err
	}
	cause := o.failed
	var path *os.PathError
	if errors.As(cause, &path) {
		cause = path.Err // its name of the file is Go's
	}
	return &Exit{StatusOutput, fmt.Errorf("write stdout: %w", cause)}
}
