package runner

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Times between two looks at the outputs: while one may outgrow its bounds, while one is written to, and where the kernel
// can't report that it was.
const (
	trimFast  = time.Millisecond
	trimEvery = 10 * time.Millisecond
	trimPoll  = 100 * time.Millisecond
)

// trimmer keeps the agent's outputs within their bounds while they are written.
type trimmer struct {
	outputs []*output
	events  *os.File // inotify's, for all of them; nil where the kernel has no watch
}

func newTrimmer(outputs ...*output) *trimmer {
	t := &trimmer{outputs: outputs}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return t
	}
	events := os.NewFile(uintptr(fd), "inotify")
	for _, o := range outputs {
		if _, err := unix.InotifyAddWatch(fd, o.path, unix.IN_MODIFY); err != nil {
			_ = events.Close() // it would miss something
			return t
		}
	}
	t.events = events
	return t
}

// close ends the watch. The kernel takes some 15 ms for that, which nobody who waits for a run's end should.
func (t *trimmer) close() {
	if t != nil && t.events != nil {
		_ = t.events.Close() // it was only read
	}
}

// run trims until ctx is done, as far as an agent that prints at full speed between two looks lets it. It sleeps as long
// as nothing is printed.
func (t *trimmer) run(ctx context.Context) error {
	if t.events != nil {
		stop := context.AfterFunc(ctx, func() { _ = t.events.SetReadDeadline(time.Now()) }) // which ends a read
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
			pause(ctx, trimFast)
		default:
			pause(ctx, trimEvery)
		}
	}
	return nil
}

// wait returns when something was written since the last call, or ctx is done.
func (t *trimmer) wait(ctx context.Context) {
	if t.events != nil {
		if _, err := t.events.Read(make([]byte, 4096)); err == nil {
			return
		}
	}
	pause(ctx, trimPoll)
}

// shorten gives back the blocks of all but the end of the file, and returns the file's size. The offsets stay, so
// whoever follows it is not confused.
func (o *output) shorten() (size int64, err error) {
	st, err := o.file.Stat()
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
	o.base = (size - maxOutput/4) &^ (holeUnit - 1)
	err = unix.Fallocate(int(o.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, o.base)
	if errors.Is(err, unix.EOPNOTSUPP) {
		o.base = 0
		err = o.file.Truncate(0) // such a file system gives blocks back in no other way
	}
	return size, err
}

// holeUnit is what a hole in a file begins and ends at.
const holeUnit = 64 << 10

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
