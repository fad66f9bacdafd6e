package session

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

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
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	if w.w == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return
	}
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
		case <-timer.C:
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
