// Package stdin reads what a command is given on its standard input. A read ends with the command's context, though the
// system's own does not. What a person types at a terminal is read key by key: a terminal that collects lines silently
// drops what a line has beyond 4,095 bytes. A text that is pasted is one, whatever newlines it has.
package stdin

import (
	"context"
	"errors"
	"fmt"
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

// ErrTooLong is returned for a typed text of more bytes than are taken.
var ErrTooLong = errors.New("the text is too long")

// Terminal reads what a person types: texts that Enter ends, until Ctrl-D on an empty line, which is io.EOF. Backspace,
// Ctrl-W and Ctrl-U erase. Ctrl-C and the other keys that send signals do so. It is not safe for concurrent use, but
// for Close.
type Terminal struct {
	in     io.Reader
	out    io.Writer // the terminal, for the echo
	most   int       // bytes of a text
	keys   *keys
	editor editor
	chunk  []byte
	rest   []byte // of the chunk: not taken yet
	line   []byte // of the text that Read hands on
}

// Open reads keys from the terminal f until ctx ends, or Close. Texts have most bytes at most. With echo they are shown
// as they are typed. It returns errors.ErrUnsupported for a file that is no such terminal.
func Open(ctx context.Context, f *os.File, most int, echo bool) (*Terminal, error) {
	k, err := takeKeys(f)
	if err != nil {
		return nil, err
	}
	t := &Terminal{in: Reader(ctx, f), out: io.Discard, most: most, keys: k, chunk: make([]byte, 4<<10)}
	if echo {
		t.out = f
	}
	return t, nil
}

// Close gives the terminal back as it was. It may be called more than once.
func (t *Terminal) Close() error { return t.keys.Close() }

// Next returns the next text, without the newline that ends it.
func (t *Terminal) Next() (string, error) {
	for {
		for i, b := range t.rest {
			echo, s := t.editor.key(b)
			_, _ = t.out.Write(echo) // a terminal that hangs up ends the read, too
			switch {
			case len(t.editor.text) > t.most:
				return "", fmt.Errorf("%w: more than %d bytes", ErrTooLong, t.most)
			case s == ended:
				return "", io.EOF
			case s == whole:
				text := string(t.editor.text)
				t.editor, t.rest = editor{}, t.rest[i+1:]
				return text, nil
			}
		}
		n, err := t.in.Read(t.chunk)
		if t.rest = t.chunk[:n]; err != nil && n == 0 {
			return "", err
		}
	}
}

// Read reads the texts, each with a newline behind it.
func (t *Terminal) Read(p []byte) (int, error) {
	if len(t.line) == 0 {
		text, err := t.Next()
		if err != nil {
			return 0, err
		}
		t.line = []byte(text + "\n")
	}
	n := copy(p, t.line)
	t.line = t.line[n:]
	return n, nil
}
