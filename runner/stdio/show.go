package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
)

// Copy copies the growing file to w until ctx is done, and then the rest. wrote counts the bytes. Bytes that are
// freed before a slow w takes them are left out.
func Copy(ctx context.Context, path string, w io.Writer, wrote *atomic.Int64) error {
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

// CopyAnswers writes the answers in the growing file to w until ctx is done, and then the rest, each with a newline at
// its end. done counts the bytes that it has parsed.
func CopyAnswers(
	ctx context.Context, path string, w io.Writer, answer func([]byte) (string, bool), done *atomic.Int64,
) error {
	lines := Lines{Path: path}
	defer lines.Close() // read only: nothing to lose
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
		if err := errors.Join(lines.Read(last, take), werr); err != nil || last {
			return err
		}
		pause.For(ctx, showEvery)
	}
}

// Show runs copy, which shows an output to a person, until stop is called. stop waits until the rest is copied, or copy
// has counted nothing for heldFor.
func Show(ctx context.Context, copy func(ctx context.Context, done *atomic.Int64) error) (stop func()) {
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
