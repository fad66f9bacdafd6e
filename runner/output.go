package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// Sizes of the kept parts of the agent's output.
const (
	maxOutput  = 16 << 20 // of each of stdout and stderr
	tailWindow = 64 << 10 // of stderr; redacted before the tail is cut, so that no half secret stays
	maxTail    = 4 << 10  // of stderr, on the thread
	maxMessage = 4 << 10  // of the agent's message about its failure
)

// output is one of the agent's output streams: a file that the agent writes. There is no pipe, so the agent outlives
// its worker, and a process that keeps the stream open delays nothing.
type output struct {
	path string
	file *os.File      // the agent's end
	size int64         // at the last call of grown
	base int64         // the blocks before it are freed; the trimmer's
	keep *atomic.Int64 // the blocks from there on stay; nil: no such limit
	was  int64         // size at the trimmer's last look
}

func newOutput(folder, name string) (*output, error) {
	path := filepath.Join(folder, name)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	return &output{path: path, file: f}, err
}

// grown reports whether the file has grown since the last call.
func (o *output) grown() (bool, error) {
	st, err := o.file.Stat()
	if err != nil {
		return false, err
	}
	grew := st.Size() > o.size
	o.size = st.Size()
	return grew, nil
}

// settle cuts the file of an agent that has ended to the part that is kept, and closes it.
func (o *output) settle() error {
	st, err := o.file.Stat()
	if err != nil || st.Size() <= maxOutput/2 {
		return errors.Join(err, o.file.Close())
	}
	begin, err := unix.Seek(int(o.file.Fd()), 0, unix.SEEK_DATA) // behind an earlier worker's hole
	if err != nil {
		begin = o.base
	}
	tail, err := tailOf(o.path, min(maxOutput/2, st.Size()-begin))
	if err == nil {
		err = runfolder.Replace(o.path, tail)
	}
	return errors.Join(err, o.file.Close())
}

// tailOf returns the last n bytes of a file.
func tailOf(path string, n int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing to lose
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, st.Size()-n), n))
}

// outputLines reads the lines of an output while it is trimmed. One read takes at most the part that is kept.
type outputLines struct {
	path string
	f    *os.File
	at   int64  // read so far
	part []byte // the beginning of a line without its end
	skip bool   // skip to the end of a line whose beginning is lost

	whole bool // no block behind at is freed: nothing is left out
}

// read calls take for each new line. last: the agent has ended, so that an unterminated line counts, too.
func (o *outputLines) read(last bool, take func(line []byte)) error {
	if o.f == nil {
		f, err := os.Open(o.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		o.f = f
	}
	st, err := o.f.Stat()
	if err != nil {
		return err
	}
	end := st.Size()
	switch {
	case end < o.at: // shortened: read it from its start
		o.at, o.part, o.skip = 0, nil, false
	case end-o.at > maxOutput/4 && !o.whole: // the blocks before may be freed
		o.at, o.part, o.skip = end-maxOutput/4, nil, true
	}
	b := make([]byte, 64<<10)
	for o.at < end {
		n, err := o.f.ReadAt(b[:min(int64(len(b)), end-o.at)], o.at)
		if n == 0 {
			return err
		}
		o.at += int64(n)
		o.split(b[:n], take)
	}
	if last && len(o.part) > 0 {
		take(o.part)
		o.part = nil
	}
	return nil
}

// split takes the next bytes.
func (o *outputLines) split(b []byte, take func(line []byte)) {
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte{'\n'})
		switch {
		case !o.skip && whole && len(o.part) == 0:
			take(line)
		case !o.skip && whole:
			take(append(o.part, line...))
		case !o.skip:
			o.part = append(o.part, line...)
		}
		if whole {
			o.part, o.skip = o.part[:0], false
		} else if len(o.part) > maxOutput/4 {
			o.part, o.skip = nil, true
		}
		b = rest
	}
}

func (o *outputLines) close() error {
	if o.f == nil {
		return nil
	}
	return o.f.Close()
}

// copyOutput copies the growing file to w until ctx is done, and then the rest. wrote counts the bytes. Bytes that are
// freed before a slow w takes them are left out.
func copyOutput(ctx context.Context, path string, w io.Writer, wrote *atomic.Int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only: nothing to lose
	b := make([]byte, 32<<10)
	for at := int64(0); ; {
		st, err := f.Stat()
		if err != nil {
			return err
		}
		if lost := st.Size() - at - maxOutput/4; lost > 0 {
			at += lost
			if _, err := fmt.Fprintf(w, "\n… %d bytes not shown …\n", lost); err != nil {
				return err
			}
		}
		n, err := f.ReadAt(b, at)
		if n > 0 {
			at += int64(n)
			if _, err := w.Write(b[:n]); err != nil {
				return err
			}
			wrote.Add(int64(n))
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) || ctx.Err() != nil {
			return err
		}
		pause.For(ctx, showEvery)
	}
}

const (
	showEvery = 50 * time.Millisecond // between two reads
	heldFor   = time.Second           // how long a stop waits for a person's terminal that takes nothing
)

// copyAnswers writes the answers in the growing file to w until ctx is done, and then the rest, each with a newline at
// its end. done counts the bytes that it has parsed.
func copyAnswers(
	ctx context.Context, path string, w io.Writer, answer func([]byte) (string, bool), done *atomic.Int64,
) error {
	lines := outputLines{path: path}
	defer lines.close() // read only: nothing to lose
	reply := ""
	var werr error
	take := func(line []byte) {
		done.Add(int64(len(line)) + 1)
		text, final := answer(line)
		if text != "" {
			reply = text
		}
		if final && reply != "" && werr == nil {
			_, werr = io.WriteString(w, strings.TrimSuffix(reply, "\n")+"\n")
		}
		if final {
			reply = ""
		}
	}
	for {
		last := ctx.Err() != nil
		if err := errors.Join(lines.read(last, take), werr); err != nil || last {
			return err
		}
		pause.For(ctx, showEvery)
	}
}

// show runs copy, which shows an output to a person, until stop is called. stop waits until the rest is copied, or copy
// has counted nothing for heldFor.
func show(ctx context.Context, copy func(ctx context.Context, done *atomic.Int64) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var count atomic.Int64
	go func() {
		defer close(done)
		_ = copy(ctx, &count) // an error means that its reader is gone
	}()
	return func() {
		cancel()
		for before := int64(-1); ; {
			now := count.Load()
			if now == before {
				return // the reader is blocked: the file has the rest
			}
			before = now
			select {
			case <-done:
				return
			case <-time.After(heldFor):
			}
		}
	}
}
