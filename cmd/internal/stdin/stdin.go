// Package stdin reads what a command is given on its standard input. A read ends with the command's context, though the
// system's own does not. What a person types at a terminal is read key by key: a terminal that collects lines silently
// drops what a line has beyond 4,095 bytes. A text that is pasted is one, whatever newlines it has.
package stdin

import (
	"context"
	"io"
	"os"
	"slices"
)

// Reader returns a reader of in whose reads end with ctx, with the cause of its end. A read of in that is under way
// then hangs until the process ends.
func Reader(ctx context.Context, in io.Reader) io.Reader { return &reader{ctx: ctx, in: in} }

type reader struct {
	ctx context.Context
	in  io.Reader

	came chan chunk // capacity 1: a read under way, or what it has read; nil for none
	rest []byte
	err  error // behind rest
}

type chunk struct {
	b   []byte
	err error
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.came == nil {
			r.came = make(chan chunk, 1)
			go func(to chan<- chunk) {
				b := make([]byte, 32<<10)
				n, err := r.in.Read(b)
				to <- chunk{b[:n], err}
			}(r.came)
		}
		select {
		case c := <-r.came:
			r.came, r.rest, r.err = nil, c.b, c.err
		case <-r.ctx.Done():
			return 0, context.Cause(r.ctx)
		}
	}
	n := copy(p, r.rest)
	r.rest = slices.Delete(r.rest, 0, n)
	return n, nil
}

// Waits reports whether a file or pipe has something that nobody has read. A terminal has not.
func Waits(in io.Reader) bool {
	f, is := in.(*os.File)
	if !is {
		return false
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return err == nil && st.Mode()&os.ModeNamedPipe != 0 && readable(f)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	return err == nil && st.Size() > at
}
