package log

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// Post is a request to append to a stream, to close it, or both.
type Post struct {
	Type     string // of the Body, to be equal to the stream's; "" where there is none
	Body     []byte
	Producer *Producer // nil without one
	Seq      string    // has to sort after that of the post before; "" for none
	Close    bool
	Run      string // whose signals alone the entries of a thread may be; "" for any
}

// Posted is the result of a Post.
type Posted struct {
	Stream    Stream
	Duplicate bool      // the producer's request was accepted before, and changed nothing now
	Last      *Producer // its last accepted request; nil without one
}

// Post appends to a stream, closes it, or both, and returns when that is durable. It returns ErrAbsent, ErrGone,
// ErrThreadClose, ErrSeq, ErrEpoch, a *ClosedError, *TypeError, *GapError, *StaleEpochError, *QuotaError, or an error
// of the body, and has changed nothing then. After another error it may have.
func (l *Log) Post(ctx context.Context, name string, p Post) (out Posted, err error) {
	if _, is := thread.OfStream(name); is && p.Close {
		return out, ErrThreadClose
	}
	if _, err := l.Stat(ctx, name); err != nil { // what has expired is deleted now
		return out, err
	}
	began, n, size := time.Now(), 0, 0
	head, err := l.update(ctx, name, func(head engine.Head) (*engine.Append, error) {
		v, err := newStream(name, head)
		if err != nil {
			return nil, err
		}
		out = Posted{Stream: v}
		switch {
		case !head.Exists() || l.uses.expired(v, time.Now()):
			return nil, ErrAbsent
		case v.Gone:
			return nil, ErrGone
		}
		a, err := l.decidePost(ctx, v, p, &out)
		if n, size = 0, 0; a != nil {
			n, size = len(a.Records), sizeOf(a.Records)
		}
		return a, err
	})
	if err == nil {
		l.Observer.Appended(n, 0, size, time.Since(began))
		out.Stream, err = newStream(name, head)
	}
	return out, err
}

// decidePost says what a POST adds to a stream.
func (l *Log) decidePost(ctx context.Context, v Stream, p Post, out *Posted) (*engine.Append, error) {
	a := &engine.Append{}
	if p.Producer != nil {
		last, err := l.producer(ctx, v.Name, p.Producer.ID)
		if err != nil {
			return nil, err
		}
		duplicate, err := p.Producer.accept(last)
		if err != nil && !(v.Closed && errors.As(err, new(*GapError))) {
			return nil, err
		}
		if duplicate && (!v.Closed || !p.Close || v.ClosedBy != nil && *v.ClosedBy == *p.Producer) {
			out.Duplicate, out.Last = true, last
			return nil, nil
		}
		if !v.Closed {
			out.Last = p.Producer
			a.Values = map[string][]byte{valueProducer + p.Producer.ID: thread.Marshal(p.Producer)}
		}
	}
	if v.Closed {
		if p.Close && len(p.Body) == 0 && p.Producer == nil {
			return nil, nil // it is, already
		}
		return nil, &ClosedError{v.Tail()}
	}
	if len(p.Body) > 0 {
		if p.Type != v.Type {
			return nil, &TypeError{Type: v.Type}
		}
		if err := l.addBody(ctx, v, p, a); err != nil {
			return nil, err
		}
	}
	if p.Seq != "" {
		if p.Seq <= v.Seq {
			return nil, ErrSeq
		}
		v.Seq = p.Seq
	}
	if p.Close {
		v.Closed, v.ClosedBy = true, p.Producer
	}
	if v.HasTTL {
		v.Used = time.Now()
	}
	if a.State = v.head.State; a.State != nil || p.Seq != "" {
		a.State = v.state()
	}
	if len(a.Records) == 0 && a.Values == nil && bytes.Equal(a.State, v.head.State) {
		return nil, nil // only entries that are there
	}
	return a, nil
}

// addBody adds what a POST brings to an append: of a thread the entries that are new.
func (l *Log) addBody(ctx context.Context, v Stream, p Post, a *engine.Append) (err error) {
	if _, is := thread.OfStream(v.Name); is {
		entries, err := ParseEntries(p.Body, p.Run)
		if err != nil {
			return err
		}
		return l.addEntries(ctx, v.Name, a, entries, &Appended{})
	}
	a.Records, err = cut(v.Type, p.Body, false)
	return err
}

// producer is where a producer stands; nil for one that the stream does not know.
func (l *Log) producer(ctx context.Context, name, id string) (*Producer, error) {
	raw, err := l.engine.Value(ctx, name, valueProducer+id)
	if err != nil || raw == nil {
		return nil, err
	}
	p := &Producer{}
	return p, json.Unmarshal(raw, p)
}
