package log

import (
	"context"
	"errors"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// readAtOnce is how many bytes the log reads from its engine at once for its own purposes.
const readAtOnce = 1 << 20

// Names of a stream's values.
const (
	valueProducer = "p/" // + the producer's id
	valueFork     = "f/" // + the name of a stream that was forked from this one: its Born
)

// Stat returns the stream as it is now. It returns ErrAbsent for one that does not exist or has expired, ErrGone for one
// that is kept for its forks only.
func (l *Log) Stat(ctx context.Context, name string) (Stream, error) {
	head, err := l.engine.Head(ctx, name)
	if err != nil {
		return Stream{}, err
	}
	return l.judge(ctx, name, head)
}

// judge is Stat for a head. What has expired is deleted.
func (l *Log) judge(ctx context.Context, name string, head engine.Head) (Stream, error) {
	v, err := newStream(name, head)
	switch {
	case err != nil:
		return v, err
	case !head.Exists():
		return v, ErrAbsent
	case v.Gone:
		return v, ErrGone
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

// Touch writes down that a stream was used, where its time depends on it. Where the log takes no appends, it is kept in mind: no read fails for it.
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
				break // now its own come
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

// source is the stream that v was forked from.
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

// Delete deletes a stream. It returns ErrAbsent or ErrGone where there is nothing to delete.
func (l *Log) Delete(ctx context.Context, name string) error {
	if _, err := l.Stat(ctx, name); err != nil { // one that has expired is not there
		return err
	}
	err := l.drop(ctx, name, func(Stream) bool { return true })
	if err == nil {
		l.Observer.Deleted()
	}
	return err
}

// drop deletes a stream, where it is still to be. One with forks is kept for them, and said to be gone; the last of them takes it along.
func (l *Log) drop(ctx context.Context, name string, still func(Stream) bool) error {
	// First it is said to be gone: from then on there are no new forks, and nothing is appended.
	var v Stream
	_, err := l.update(ctx, name, func(head engine.Head) (a *engine.Append, err error) {
		v, err = newStream(name, head)
		switch {
		case err != nil:
			return nil, err
		case !head.Exists() || !still(v):
			return nil, ErrAbsent
		case v.Gone:
			return nil, ErrGone
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
		if err := l.engine.Delete(ctx, v.Name); err != nil {
			return err
		}
		l.forget(v.Name)
		if v.Fork == nil {
			return nil
		}
		source, err := l.source(ctx, v)
		if err != nil {
			return nil //nolint:nilerr // it is gone as well
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

// forked reports whether streams that were forked from v live. Those that a creation left which did not come to its end do not.
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

// setFork writes down that a stream was forked from source, or with nil that it is not there any more.
func (l *Log) setFork(ctx context.Context, source, name string, mark []byte) error {
	_, err := l.update(ctx, source, func(head engine.Head) (*engine.Append, error) {
		v, err := newStream(source, head)
		switch {
		case err != nil:
			return nil, err
		case !head.Exists():
			return nil, ErrAbsent
		case v.Gone && mark != nil:
			return nil, ErrGone
		}
		return &engine.Append{State: head.State, Values: map[string][]byte{valueFork + name: mark}}, nil
	})
	return err
}

// forget takes what is known of a stream out of mind, and wakes those who wait for it.
func (l *Log) forget(name string) {
	used := l.streams.Acquire(name)
	s := &used.Value
	s.mu.Lock()
	s.known, s.sizedAt = false, 0
	s.mu.Unlock()
	l.streams.Release(used)
	l.tell(name)
}
