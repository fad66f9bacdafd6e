package log

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// noticeStream begins the names of notices. The rest is the name of the stream that was deleted. It has a control
// character, as noteStream.
const noticeStream = "\x01gone/"

// noticeFor is how long a notice is kept: a server that watches and has been without the cluster for less than that
// still receives it.
const noticeFor = 24 * time.Hour

// announce appends a notice of a deletion, for the servers that Watch. The deletion itself does not reach them all: an
// engine reports appends, and of a stream that is deleted before it has read them it reports none.
//
// It is called before the deletion. If it fails, or the process ends after it, the next pass of Expire deletes the
// stream and calls it again.
func (l *Log) announce(ctx context.Context, name string) error {
	if _, shared := l.engine.(watcher); !shared {
		return nil
	}
	head, err := l.engine.Head(ctx, noticeStream+name)
	if err != nil {
		return fmt.Errorf("announce the deletion of %s: %w", name, err)
	}
	until := time.Now().Add(noticeFor)
	_, err = l.engine.Append(ctx, noticeStream+name, engine.Append{
		After: head.Last, State: Meta{Type: typeJSON, Expires: &until}.state(),
	})
	if err != nil && !errors.Is(err, engine.ErrConflict) { // on a conflict another server has just announced it
		return fmt.Errorf("announce the deletion of %s: %w", name, err)
	}
	return nil
}

// announced returns the stream whose deletion the stream with this name announces.
func announced(name string) (stream string, is bool) { return strings.CutPrefix(name, noticeStream) }

// expireNotice deletes a notice whose time is over.
func (l *Log) expireNotice(ctx context.Context, now time.Time, name string, head engine.Head) error {
	v, err := newStream(name, head)
	if err != nil || !v.expired(now) {
		return err
	}
	return l.engine.Delete(ctx, name)
}
