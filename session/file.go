package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"arbe.0sk.ar/runner/internal/pause"
)

// ErrNotFile is the error for a path that names no regular file: a folder, a FIFO, a device, a socket or a loop of
// links.
var ErrNotFile = errors.New("not a regular file")

// Open opens the regular file at path for reading. Another kind of file is ErrNotFile: a FIFO would block until
// somebody writes into it, and opening a device can do more than open it.
func Open(path string) (*os.File, error) { return open(path, os.O_RDONLY) }

// OpenAppend is Open for reading and for writing at the file's end.
func OpenAppend(path string) (*os.File, error) { return open(path, os.O_RDWR|os.O_APPEND) }

func open(path string, flag int) (*os.File, error) {
	if err := regular(os.Stat(path)); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	// Another file may have taken the name since: the open itself must not block either, and what it gave is looked
	// at.
	f, err := os.OpenFile(path, flag|neverBlock, 0)
	if err != nil {
		return nil, err
	}
	if err := regular(f.Stat()); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), f.Close())
	}
	return f, nil
}

func regular(st os.FileInfo, err error) error {
	switch {
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%w: %w", ErrNotFile, err)
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%w: it is a %s", ErrNotFile, kindOf(st.Mode()))
	}
	return nil
}

// kindOf names what is no regular file.
func kindOf(mode os.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&os.ModeNamedPipe != 0:
		return "FIFO"
	case mode&os.ModeDevice != 0:
		return "device"
	case mode&os.ModeSocket != 0:
		return "socket"
	}
	return mode.Type().String()
}

// Watch waits for changes of a file. An event is a hint: it can be lost (overflow), never come (network file systems)
// or mean nothing. Read from your own offset after each Wait, and bound each Wait.
type Watch struct {
	path string
	w    *fsnotify.Watcher // nil without inotify
	on   bool              // the folder is being watched
}

// NewWatch watches the folder of path: the file itself may not exist yet, or be replaced. Without inotify Wait only
// polls. Close it when done.
func NewWatch(path string) *Watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		w = nil // out of inotify instances: Wait polls
	}
	return &Watch{path: filepath.Clean(path), w: w}
}

// Close releases the watch.
func (w *Watch) Close() error {
	if w.w == nil {
		return nil
	}
	return w.w.Close()
}

// Wait returns when the file may have changed, after atMost, or when ctx is done.
func (w *Watch) Wait(ctx context.Context, atMost time.Duration) {
	if w.w == nil {
		pause.For(ctx, atMost)
		return
	}
	timeout := time.After(atMost)
	if !w.on {
		// The folder may be made after the watch. The caller reads the file now, and misses no change.
		w.on = w.w.Add(filepath.Dir(w.path)) == nil
		if w.on {
			return
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timeout:
			return
		case <-w.w.Errors: // an overflow, mostly: something changed
			return
		case e := <-w.w.Events:
			if filepath.Clean(e.Name) == w.path {
				return
			}
		}
	}
}
