package log

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// readAtOnce is how many bytes the log reads from its engine at once for its own purposes.
const readAtOnce = 1 << 20

// Names of a stream's values.
const (
	valueProducer = "p/" // + the producer's id
	valueFork     = "f/" // + a fork's name: the Born of the fork
)

// Stat returns the stream as it is now. It returns ErrAbsent for one that does not exist or has expired, ErrGone for a
// thread that was deleted and for a stream that is kept for its forks only.
func (l *Log) Stat(ctx context.Context, name string) (Stream, error) {
	head, err := l.engine.Head(ctx, name)
	if err != nil {
		return Stream{}, err
	}
	return l.judge(ctx, name, head)
}

// judge is Stat for a head. It deletes an expired stream.
func (l *Log) judge(ctx context.Context, name string, head engine.Head) (Stream, error) {
	v, err := newStream(name, head)
	switch {
	case err != nil:
		return v, err
	case v.Gone:
		return v, ErrGone
	case !head.Exists():
		return v, ErrAbsent
	case l.uses.expired(v, time.Now()):
		switch err := l.drop(ctx, name, func(v Stream) bool { return l.uses.expired(v, time.Now()) }); {
		case err == nil:
			l.Observer.Expired()
		case !errors.Is(err, ErrAbsent) && !errors.Is(err, ErrGone):
			return v, &undeletedError{err}
		}
		return v, ErrAbsent
	}
	return v, nil
}

// value decodes a stream's value into v. Without a value it leaves v unchanged.
func (l *Log) value(ctx context.Context, stream, name string, v any) error {
	raw, err := l.engine.Value(ctx, stream, name)
	if err == nil && raw != nil {
		if err = json.Unmarshal(raw, v); err != nil {
			err = fmt.Errorf("value %s of %s in the log: %w", name, stream, err)
		}
	}
	return err
}

// Touch records that a stream was used, where it has a TTL. It never fails: where the log takes no appends, this
// process keeps the use in memory.
func (l *Log) Touch(ctx context.Context, v Stream) {
	if !v.HasTTL || time.Now().Before(v.Used) {
		return
	}
	_, err := l.update(ctx, v.Name, func(head engine.Head) (*engine.Append, error) {
		now, err := newStream(v.Name, head)
		if err != nil || now.Born != v.Born || now.Gone {
			return nil, err
		}
		now.Used = time.Now().Add(now.lazy())
		return &engine.Append{State: now.state()}, nil
	})
	if err != nil {
		l.uses.note(v, time.Now())
		return
	}
	l.uses.forget(v.Name)
}

// Read returns the records of a stream after one offset up to another, as many as fit into most bytes, but at least one
// where there is any. Their Seq is an offset. Bound it by the Tail of what Stat returned.
func (l *Log) Read(ctx context.Context, v Stream, after, upTo uint64, most int) ([]engine.Record, error) {
	base := v.base()
	var records []engine.Record
	if after < base {
		source, err := l.source(ctx, v)
		if err != nil {
			return nil, err
		}
		for most > 0 {
			some, err := l.Read(ctx, source, after, min(upTo, base), most)
			if err != nil {
				return nil, err
			}
			if len(some) == 0 {
				break // the rest is its own
			}
			for _, r := range some {
				most -= len(r.Data)
			}
			records, after = append(records, some...), some[len(some)-1].Seq
		}
		if most <= 0 || upTo <= base {
			return records, nil
		}
		after = base
	}
	own, err := l.engine.Read(ctx, v.Name, after-base, upTo-base, most)
	for i := range own {
		own[i].Seq += base
	}
	return append(records, own...), err
}

// ReadBack returns the last records of a stream up to an offset, in the stream's order: whole appends, until they are n
// records or have most bytes, and less only where there are no more before. Their Seq is an offset.
func (l *Log) ReadBack(ctx context.Context, v Stream, upTo uint64, n, most int) ([]engine.Record, error) {
	base := v.base()
	var own []engine.Record
	if upTo > base {
		var err error
		if own, err = l.engine.ReadBack(ctx, v.Name, upTo-base, n, most); err != nil {
			return nil, err
		}
		for i := range own {
			own[i].Seq += base
		}
	}
	n, most = n-len(own), most-sizeOf(own)
	if base == 0 || n <= 0 || most <= 0 {
		return own, nil
	}
	source, err := l.source(ctx, v)
	if err != nil {
		return nil, err
	}
	records, err := l.ReadBack(ctx, source, min(upTo, base), n, most)
	return append(records, own...), err
}

// Entry returns a stream's record with this key; false where there is none. A record that was removed has no data. v is
// the result of Stat: on a cluster, Stat makes another server's appends known.
func (l *Log) Entry(ctx context.Context, v Stream, key string) (engine.Record, bool, error) {
	lookup := l.engine.Lookup
	if f, is := l.engine.(finder); is {
		lookup = f.Find
	}
	r, ok, err := lookup(ctx, v.Name, key)
	if err != nil || ok || v.Fork == nil {
		r.Seq += v.base()
		return r, ok, err
	}
	source, err := l.source(ctx, v)
	if err != nil {
		return r, false, err
	}
	r, ok, err = l.Entry(ctx, source, key)
	return r, ok && r.Seq <= v.base(), err
}

// source returns the stream that v was forked from.
func (l *Log) source(ctx context.Context, v Stream) (Stream, error) {
	head, err := l.engine.Head(ctx, v.Fork.From)
	if err != nil {
		return Stream{}, err
	}
	source, err := newStream(v.Fork.From, head)
	if err == nil && (!head.Exists() || source.Born != v.Fork.Born) {
		err = errors.New("the stream that " + v.Name + " was forked from is missing in the log")
	}
	return source, err
}

// Delete deletes a stream. The name of a thread is not given again, on any server, after a restart or in a log that was
// restored from a backup; any other name is. Delete returns ErrAbsent or ErrGone where there is nothing to delete.
func (l *Log) Delete(ctx context.Context, name string) error {
	if _, err := l.Stat(ctx, name); err != nil { // deletes an expired one
		return err
	}
	err := l.drop(ctx, name, func(Stream) bool { return true })
	if err == nil {
		l.Observer.Deleted()
	}
	return err
}

// drop deletes a stream if still agrees. A stream with forks is marked as gone and kept until the last of them is
// deleted.
func (l *Log) drop(ctx context.Context, name string, still func(Stream) bool) error {
	// Gone comes first: it ends appends and new forks.
	var v Stream
	_, err := l.update(ctx, name, func(head engine.Head) (a *engine.Append, err error) {
		v, err = newStream(name, head)
		switch {
		case err != nil:
			return nil, err
		case v.Gone:
			return nil, ErrGone
		case !head.Exists() || !still(v):
			return nil, ErrAbsent
		}
		v.Gone = true
		return &engine.Append{State: v.state()}, nil
	})
	if err != nil {
		return err
	}
	return l.deleteGone(ctx, v)
}

// deleteGone deletes a stream that is gone, unless it has forks, and then the streams that were kept for it alone.
func (l *Log) deleteGone(ctx context.Context, v Stream) error {
	for {
		forked, err := l.forked(ctx, v)
		if err != nil || forked {
			return err
		}
		if err := l.announce(ctx, v.Name); err != nil {
			return err
		}
		remove := l.engine.Delete
		if isThread(v.Name) {
			remove = l.engine.Retire
		}
		if err := remove(ctx, v.Name); err != nil {
			return err
		}
		l.forget(v.Name)
		if v.Fork == nil {
			return nil
		}
		source, err := l.source(ctx, v)
		if err != nil {
			return nil //nolint:nilerr // the source does not exist any more
		}
		if err := l.setFork(ctx, source.Name, v.Name, nil); err != nil {
			return err
		}
		if !source.Gone {
			return nil
		}
		v = source
	}
}

// forked reports whether v has forks. One whose creation was interrupted does not count.
func (l *Log) forked(ctx context.Context, v Stream) (bool, error) {
	values, err := l.engine.Values(ctx, v.Name, valueFork)
	if err != nil {
		return false, err
	}
	for key := range values {
		name := strings.TrimPrefix(key, valueFork)
		head, err := l.engine.Head(ctx, name)
		if err != nil {
			return false, err
		}
		f, err := newStream(name, head)
		if err != nil {
			return false, err
		}
		if head.Exists() && f.Fork != nil && f.Fork.From == v.Name && f.Fork.Born == v.Born {
			return true, nil
		}
	}
	return false, nil
}

// setFork records the fork name, born with mark, at its source. nil removes it.
func (l *Log) setFork(ctx context.Context, source, name string, mark []byte) error {
	_, err := l.update(ctx, source, func(head engine.Head) (*engine.Append, error) {
		v, err := newStream(source, head)
		switch {
		case err != nil:
			return nil, err
		case v.Gone && mark != nil:
			return nil, ErrGone
		case !head.Exists():
			return nil, ErrAbsent
		}
		return &engine.Append{State: head.State, Values: map[string][]byte{valueFork + name: mark}}, nil
	})
	return err
}

// forget removes a stream from the cache, and wakes those who wait for it.
func (l *Log) forget(name string) {
	used := l.streams.Acquire(name)
	s := &used.Value
	s.mu.Lock()
	s.known, s.sizedAt = false, 0
	s.mu.Unlock()
	l.streams.Release(used)
	l.changed(name)
}
