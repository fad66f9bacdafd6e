package log

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Where the installation's id is: a value of a stream of its own. The stream's name has a control character, so that no
// client can name it. It has neither records nor state, so Engine.Streams leaves it out.
const (
	installationStream = "\x01installation"
	installationValue  = "id"
)

// Installation returns the id of the installation: 26 characters of a-z and 2-7, made once and kept in the log. All
// servers on one NATS cluster and prefix have the same, and so has a log that was restored from a backup.
func (l *Log) Installation(ctx context.Context) (string, error) {
	if id := l.installation.Load(); id != nil {
		return *id, nil
	}
	for range maxAttempts {
		// Head comes before Values: after a conflict it refreshes the engine's cache of the stream.
		if _, err := l.engine.Head(ctx, installationStream); err != nil {
			return "", fmt.Errorf("read the installation's id: %w", err)
		}
		values, err := l.engine.Values(ctx, installationStream, installationValue)
		if err != nil {
			return "", fmt.Errorf("read the installation's id: %w", err)
		}
		id := string(values[installationValue])
		if id == "" {
			id = strings.ToLower(rand.Text())
			a := engine.Append{Values: map[string][]byte{installationValue: []byte(id)}}
			_, err := l.engine.Append(ctx, installationStream, a)
			if errors.Is(err, engine.ErrConflict) { // another server was faster
				continue
			}
			if err != nil {
				return "", fmt.Errorf("write the installation's id: %w", err)
			}
		}
		l.installation.Store(&id)
		return id, nil
	}
	return "", fmt.Errorf("write the installation's id: %w, %d times", engine.ErrConflict, maxAttempts)
}

// slowAppend is how long an append may take before its client's departure counts as a failure of the engine. An engine
// waits longer for a cluster than most clients do.
const slowAppend = 2 * time.Second

// writable tracks since when the engine takes appends.
type writable struct {
	failing atomic.Bool // the last append failed

	mu    sync.Mutex
	since time.Time // guarded by mu

	checking sync.Mutex // held during Engine.Check
}

// note records the result of an append and its duration. A conflict proves nothing, and neither does a client that left
// at once.
func (w *writable) note(ctx context.Context, err error, took time.Duration) {
	switch {
	case err == nil:
		w.recovered()
	case errors.Is(err, engine.ErrConflict), ctx.Err() != nil && took < slowAppend:
	default:
		w.failing.Store(true)
	}
}

// recovered ends a failure, if there is one.
func (w *writable) recovered() {
	if !w.failing.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing.Swap(false) {
		w.since = time.Now()
	}
}

// WritableSince returns since when this process could append to the log without interruption: since the engine was
// opened, or since it recovered from a failure. It is the present while the log can't be written. A failure ends with
// the next good append, or with a good Engine.Check, which one caller at a time makes here.
func (l *Log) WritableSince(ctx context.Context) time.Time {
	w := &l.writable
	if w.failing.Load() && w.checking.TryLock() {
		if l.engine.Check(ctx) == nil {
			w.recovered()
		}
		w.checking.Unlock()
	}
	if w.failing.Load() {
		return time.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since
}
