package log

import (
	"bytes"
	"context"
	"errors"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// Post is a request to append to a stream, to close it, or both.
type Post struct {
	Type     string // content type of the Body; has to be the stream's
	Body     []byte
	Producer *Producer // nil without one
	Seq      string    // has to sort after the last one; "" for none
	Close    bool
	Writer   Writer // of a thread's entries
}

// Posted is the result of a Post.
type Posted struct {
	Stream    Stream
	Duplicate bool      // the producer's request was accepted before
	Last      *Producer // its last accepted request; nil without one
}

// Post appends to a stream, closes it, or both, and returns when that is durable. It returns ErrAbsent, ErrGone,
// ErrThreadClose, ErrSeq, ErrEpoch, a *ClosedError, *TypeError, *GapError, *StaleEpochError, *QuotaError, or an error
// of the body, and has changed nothing then. After another error it may have.
func (l *Log) Post(ctx context.Context, name string, p Post) (out Posted, err error) {
	if isThread(name) && p.Close {
		return out, ErrThreadClose
	}
	if _, err := l.Stat(ctx, name); err != nil { // deletes an expired one
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
		case v.Gone:
			return nil, ErrGone
		case !head.Exists() || l.uses.expired(v, time.Now()):
			return nil, ErrAbsent
		}
		a, err := l.append(ctx, v, p, &out)
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

// append returns what a Post adds to v; nil for nothing.
func (l *Log) append(ctx context.Context, v Stream, p Post, out *Posted) (*engine.Append, error) {
	var last *Producer // its last accepted request
	if p.Producer != nil {
		if err := l.value(ctx, v.Name, valueProducer+p.Producer.ID, &last); err != nil {
			return nil, err
		}
	}
	switch action, err := p.decide(v.Meta, v.Tail(), last); {
	case err != nil:
		return nil, err
	case action == postDuplicate:
		out.Duplicate, out.Last = true, last
		return nil, nil
	case action == postNothing:
		return nil, nil
	}
	a := &engine.Append{}
	if p.Producer != nil {
		out.Last = p.Producer
		a.Values = map[string][]byte{valueProducer + p.Producer.ID: thread.Marshal(p.Producer)}
	}
	if len(p.Body) > 0 {
		if err := l.addBody(ctx, &v, p, a); err != nil {
			return nil, err
		}
	}
	next, err := p.next(v.Meta, time.Now())
	if err != nil {
		return nil, err
	}
	if a.State = v.head.State; a.State != nil || p.Seq != "" || v.Passing {
		a.State = next.state()
	}
	if len(a.Records) == 0 && a.Values == nil && bytes.Equal(a.State, v.head.State) {
		return nil, nil // all entries existed
	}
	return a, nil
}

// postAction is the result of Post.decide.
type postAction int

const (
	postAppend    postAction = iota
	postDuplicate            // the producer's request was accepted before
	postNothing              // the stream is closed already, and no more is asked
)

// decide is the protocol's table of a POST to a stream that exists, whose producer's last accepted request is last. The
// first row that fits holds.
//
//	stream   producer's request     other conditions                result
//	any      of an earlier epoch                                    *StaleEpochError
//	any      first of an epoch      its Seq is not 0                ErrEpoch
//	open     leaves a gap                                           *GapError
//	open     accepted before                                        postDuplicate
//	closed   accepted before        does not close                  postDuplicate
//	closed   accepted before        is the one that closed it       postDuplicate
//	closed   none                   closes, without a body          postNothing
//	closed   any or none                                            *ClosedError
//	open     next or none           a body of another type          *TypeError
//	open     next or none                                           postAppend
func (p Post) decide(m Meta, tail uint64, last *Producer) (postAction, error) {
	if p.Producer != nil {
		duplicate, err := p.Producer.accept(last)
		gap := errors.As(err, new(*GapError))
		switch {
		case err != nil && !(gap && m.Closed):
			return 0, err
		case duplicate && !m.Closed,
			duplicate && !p.Close,
			duplicate && m.ClosedBy != nil && *m.ClosedBy == *p.Producer:
			return postDuplicate, nil
		}
	}
	switch {
	case m.Closed && p.Producer == nil && p.Close && len(p.Body) == 0:
		return postNothing, nil
	case m.Closed:
		return 0, &ClosedError{tail}
	case len(p.Body) > 0 && p.Type != m.Type:
		return 0, &TypeError{Type: m.Type}
	}
	return postAppend, nil
}

// next returns the state of an open stream after a Post; ErrSeq where its Seq does not sort after the last one. A
// body's own errors come before that.
func (p Post) next(m Meta, now time.Time) (Meta, error) {
	if p.Seq != "" {
		if p.Seq <= m.Seq {
			return m, ErrSeq
		}
		m.Seq = p.Seq
	}
	if p.Close {
		m.Closed, m.ClosedBy = true, p.Producer
	}
	if m.HasTTL {
		m.Used = now
	}
	return m, nil
}

// addBody adds the records of a Post's body to an append: those of a thread's new entries.
func (l *Log) addBody(ctx context.Context, v *Stream, p Post, a *engine.Append) (err error) {
	if isThread(v.Name) {
		entries, err := ParseEntries(p.Body, p.Writer)
		if err != nil {
			return err
		}
		return l.addEntries(ctx, v, a, entries, &Appended{})
	}
	a.Records, err = cut(v.Type, p.Body, false)
	return err
}

// Producer is a request of an idempotent producer of the Durable Streams protocol. A stream keeps the last one of each
// producer that it accepted.
type Producer struct {
	ID    string `json:"id"`
	Epoch int64  `json:"epoch"`
	Seq   int64  `json:"seq"`
}

// accept decides about request p of a producer whose last accepted request is last, nil for none. It reports a
// duplicate, or returns a *StaleEpochError, ErrEpoch or a *GapError.
func (p *Producer) accept(last *Producer) (duplicate bool, err error) {
	if last == nil {
		if p.Seq != 0 {
			return false, &GapError{Want: 0, Got: p.Seq}
		}
		return false, nil
	}
	switch {
	case p.Epoch < last.Epoch:
		return false, &StaleEpochError{last.Epoch}
	case p.Epoch > last.Epoch && p.Seq != 0:
		return false, ErrEpoch
	case p.Epoch > last.Epoch:
		return false, nil
	case p.Seq <= last.Seq:
		return true, nil
	case p.Seq > last.Seq+1:
		return false, &GapError{Want: last.Seq + 1, Got: p.Seq}
	}
	return false, nil
}
