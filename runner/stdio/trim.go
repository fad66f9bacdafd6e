package stdio

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/pause"
)

// Intervals of trimming: while an output may outgrow its bound, while one grows, and if the kernel can't report growth.
const (
	trimFast  = time.Millisecond
	trimEvery = 10 * time.Millisecond
	trimPoll  = 100 * time.Millisecond
)

// Trimmer keeps the agent's outputs within their bounds while they are written.
type Trimmer struct {
	outputs []*Output
	events  *os.File // inotify events of all outputs; nil: the kernel has no watch
}

// NewTrimmer returns a Trimmer of the outputs. Close it.
func NewTrimmer(outputs ...*Output) *Trimmer {
	t := &Trimmer{outputs: outputs}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return t
	}
	events := os.NewFile(uintptr(fd), "inotify")
	for _, o := range outputs {
		if _, err := unix.InotifyAddWatch(fd, o.Path, unix.IN_MODIFY); err != nil {
			_ = events.Close() // it would miss an output
			return t
		}
	}
	t.events = events
	return t
}

// Close ends the watch. The kernel takes some 15 ms for that: call it after the run's end is delivered.
func (t *Trimmer) Close() {
	if t != nil && t.events != nil {
		_ = t.events.Close() // read only
	}
}

// Run trims the outputs until ctx is done. It sleeps while nothing is printed. An agent that prints at full speed can
// exceed the bound between two looks.
func (t *Trimmer) Run(ctx context.Context) error {
	if t.events != nil {
		stop := context.AfterFunc(ctx, func() { _ = t.events.SetReadDeadline(time.Now()) }) // ends a read
		defer stop()
	}
	for ctx.Err() == nil {
		grew, kept := false, int64(0)
		for _, o := range t.outputs {
			size, err := o.shorten()
			if err != nil {
				return err
			}
			grew, kept = grew || size != o.was, max(kept, size-o.base)
			o.was = size
		}
		switch {
		case !grew:
			t.wait(ctx)
		case kept > maxOutput/4:
			pause.For(ctx, trimFast)
		default:
			pause.For(ctx, trimEvery)
		}
	}
	return nil
}

// wait returns when an output has grown since the last call, or ctx is done.
func (t *Trimmer) wait(ctx context.Context) {
	if t.events != nil {
		if _, err := t.events.Read(make([]byte, 4096)); err == nil {
			return
		}
	}
	pause.For(ctx, trimPoll)
}

// shorten frees the blocks of all but the end of the file, and returns the file's size. Offsets stay valid for readers.
func (o *Output) shorten() (size int64, err error) {
	st, err := o.File.Stat()
	if err != nil {
		return 0, err
	}
	size = st.Size()
	if size < o.base {
		o.base = 0
	}
	if size-o.base <= maxOutput/2 {
		return size, nil
	}
	end := size - maxOutput/4
	if o.Keep != nil {
		end = min(end, o.Keep.Load())
	}
	if end &^= holeUnit - 1; end <= o.base {
		return size, nil
	}
	o.base = end
	err = unix.Fallocate(int(o.File.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, o.base)
	if errors.Is(err, unix.EOPNOTSUPP) {
		if o.base = 0; o.Keep != nil && o.Keep.Load() < size {
			return size, nil
		}
		err = o.File.Truncate(0) // this file system frees blocks in no other way
	}
	return size, err
}

// holeUnit is the alignment of holes in a file.
const holeUnit = 64 << 10
