package log

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// noteStream begins the names of streams with notes. It has a control character, so that no client can name them, and
// they are no threads, so that nothing lists them.
const noteStream = "\x01note/"

// noteState is the state of a stream with a note. Its Meta is empty: such a stream does not expire.
type noteState struct {
	Meta
	Note json.RawMessage `json:"note"`
}

// Note returns a note: a small JSON value of the servers' own, which no client can read. It is nil until SetNote has
// made it. On a cluster a read has what any server had written before it began.
func (l *Log) Note(ctx context.Context, name string) (json.RawMessage, error) {
	head, err := l.engine.Head(ctx, noteStream+name)
	if err != nil {
		return nil, fmt.Errorf("read note %s: %w", name, err)
	}
	return noteOf(name, head)
}

// SetNote replaces a note by what change returns for it, and returns when that is durable. change is called again where
// another server has written meanwhile. Its error ends SetNote and changes nothing; after an error of the engine the
// note may have changed.
//
// The log keeps the last value alone: a note is the state of its stream, and the record of the append before is
// removed.
func (l *Log) SetNote(
	ctx context.Context, name string, change func(was json.RawMessage) (json.RawMessage, error),
) error {
	stream := noteStream + name
	for range maxAttempts {
		head, err := l.engine.Head(ctx, stream)
		if err != nil {
			return fmt.Errorf("read note %s: %w", name, err)
		}
		was, err := noteOf(name, head)
		if err != nil {
			return err
		}
		now, err := change(was)
		if err != nil {
			return err
		}
		if bytes.Equal(was, now) {
			return nil
		}
		state, err := json.Marshal(noteState{Note: now})
		if err != nil {
			return fmt.Errorf("write note %s: %w", name, err)
		}
		_, err = l.engine.Append(ctx, stream, engine.Append{
			After: head.Last, State: state, Records: []engine.Record{{At: time.Now(), Data: []byte("{}")}},
		})
		switch {
		case errors.Is(err, engine.ErrConflict):
			continue
		case err != nil:
			return fmt.Errorf("write note %s: %w", name, err)
		case head.Data > 0:
			// A record that can't be removed takes room and has no other effect.
			_ = l.engine.Remove(ctx, stream, []uint64{head.Data})
		}
		return nil
	}
	return fmt.Errorf("write note %s: %w, %d times", name, engine.ErrConflict, maxAttempts)
}

// noteOf returns the note in a stream's state; nil for none.
func noteOf(name string, head engine.Head) (json.RawMessage, error) {
	if head.State == nil {
		return nil, nil
	}
	var s noteState
	if err := json.Unmarshal(head.State, &s); err != nil {
		return nil, fmt.Errorf("note %s in the log: %w", name, err)
	}
	return s.Note, nil
}

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
	until := time.Now().Add(noticeFor)
	_, err := l.update(ctx, noticeStream+name, func(engine.Head) (*engine.Append, error) {
		return &engine.Append{State: Meta{Type: typeJSON, Expires: &until}.state()}, nil
	})
	if err != nil {
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
