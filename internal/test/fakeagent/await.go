package fakeagent

import (
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// lookEvery is the time between two looks at a file where the kernel has no more watches for this user: rare enough
// for an agent that does nothing.
const lookEvery = 100 * time.Millisecond

// await returns when there is such a file, or when over is closed. It blocks in the kernel meanwhile: a runner measures
// what its agent does, and an agent that waits does nothing.
func await(file string, over <-chan struct{}) {
	var events chan fsnotify.Event
	var lost chan error // events: every look is at the file itself
	var tick <-chan time.Time
	watch, err := fsnotify.NewWatcher()
	if err == nil {
		defer watch.Close() // nothing to lose
		err, events, lost = watch.Add(filepath.Dir(file)), watch.Events, watch.Errors
	}
	if err != nil {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-events:
		case <-lost:
		case <-tick:
		case <-over:
			return
		}
	}
}
