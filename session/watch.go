package session

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watch tells when a file may have changed. It is a hint and no more: an event can be lost (overflow), never come
// (network file systems) or mean nothing, so whoever waits reads from his own offset afterwards, and never waits
// without a limit.
type Watch struct {
	path string
	w    *fsnotify.Watcher // nil where the kernel gave none
	on   bool              // the folder is being watched
}

// NewWatch watches the folder of path: the file itself may not exist yet, or be replaced. Where that can't be had, Wait
// polls. Close ends it.
func NewWatch(path string) *Watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		w = nil // out of inotify instances: polling serves
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
		// The folder may come later than the watch; the change that came with it is not missed, for the caller reads
		// first.
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
