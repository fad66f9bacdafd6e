package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// posted is a POST of the protocol.
type posted struct {
	kind     string // its content type, "" where it does not say
	body     []byte
	producer *producer
	seq      string // Stream-Seq, "" for none
	close    bool   // it closes the stream
	run      string // whose signals alone it may bring, on a thread; "" for any
}

// outcome is what a POST came to.
type outcome struct {
	view      view
	duplicate bool
	last      *producer // where the producer stands now; nil without one
}

// post serves POST.
func (s *Server) post(w http.ResponseWriter, r *http.Request, name string, g Grant) error {
	p := posted{close: strings.EqualFold(r.Header.Get(headerClosed), "true"), run: g.Run}
	var err error
	if p.seq, err = parseSeq(r.Header); err != nil {
		return err
	}
	if p.producer, err = parseProducer(r.Header); err != nil {
		return err
	}
	l := s.lease(r, g)
	defer l.free()
	if p.body, err = readBody(w, r, thread.MaxBody, l); err == nil {
		err = s.spend(g, len(p.body))
	}
	if err != nil {
		return err
	}
	if given := r.Header.Get("Content-Type"); given != "" {
		if p.kind, err = mediaType(given); err != nil {
			return err
		}
	}
	if len(p.body) == 0 && !p.close {
		return refuse(http.StatusBadRequest, "empty", "the body is empty")
	}
	if len(p.body) > 0 && p.kind == "" {
		return refuse(http.StatusBadRequest, "content_type", "want the stream's Content-Type")
	}
	out, err := s.Log.post(r.Context(), name, p)
	if err != nil {
		return asAnswer(err)
	}
	h := w.Header()
	h.Set(headerNext, offset(out.view.tail()))
	if out.view.Closed {
		h.Set(headerClosed, "true")
	}
	status := http.StatusNoContent
	if out.last != nil {
		h.Set(headerProducerEpoch, strconv.FormatInt(out.last.Epoch, 10))
		h.Set(headerProducerSeq, strconv.FormatInt(out.last.Seq, 10))
		if !out.duplicate && len(p.body) > 0 {
			status = http.StatusOK
		}
	}
	w.WriteHeader(status)
	return nil
}

// maxSeq is how long a Stream-Seq may be, in bytes: the stream's state has the last one.
const maxSeq = 256

// parseSeq reads Stream-Seq; "" where there is none. It is kept as text, so other bytes would not come back as they
// are compared.
func parseSeq(h http.Header) (string, error) {
	given := h.Values(headerSeq)
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || given[0] == "" || len(given[0]) > maxSeq || !utf8.ValidString(given[0]) {
		return "", refuse(http.StatusBadRequest, "header", "%s: want 1 to %d bytes of UTF-8, once", headerSeq, maxSeq)
	}
	return given[0], nil
}

// post appends to a stream, or closes it, or both.
func (l *Log) post(ctx context.Context, name string, p posted) (out outcome, err error) {
	if _, is := threadOf(name); is && p.close {
		return out, refuse(http.StatusBadRequest, "thread", "a thread is never closed: its run's end may still be on its way")
	}
	if _, err := l.state(ctx, name); err != nil { // what has expired is deleted now
		return out, err
	}
	began, n, size := time.Now(), 0, 0
	head, err := l.update(ctx, name, func(head engine.Head) (*engine.Append, error) {
		v, err := newView(name, head)
		if err != nil {
			return nil, err
		}
		out = outcome{view: v}
		switch {
		case !head.Exists() || l.uses.expired(v, time.Now()):
			return nil, errAbsent
		case v.Gone:
			return nil, errGone
		}
		a, err := l.decidePost(ctx, v, p, &out)
		if n, size = 0, 0; a != nil {
			n, size = len(a.Records), sizeOf(a.Records)
		}
		return a, err
	})
	if err == nil {
		l.metrics.appended(n, 0, size, time.Since(began))
		out.view, err = newView(name, head)
	}
	return out, err
}

// decidePost says what a POST adds to a stream.
func (l *Log) decidePost(ctx context.Context, v view, p posted, out *outcome) (*engine.Append, error) {
	a := &engine.Append{}
	if p.producer != nil {
		last, err := l.producer(ctx, v.name, p.producer.ID)
		if err != nil {
			return nil, err
		}
		duplicate, refused := p.producer.accept(last)
		if refused != nil && (refused.status != http.StatusConflict || !v.Closed) {
			return nil, refused
		}
		if duplicate && (!v.Closed || !p.close || v.ClosedBy != nil && *v.ClosedBy == *p.producer) {
			out.duplicate, out.last = true, last
			return nil, nil
		}
		if !v.Closed {
			out.last = p.producer
			a.Values = map[string][]byte{valueProducer + p.producer.ID: thread.Marshal(p.producer)}
		}
	}
	if v.Closed {
		if p.close && len(p.body) == 0 && p.producer == nil {
			return nil, nil // it is, already
		}
		refused := refuse(http.StatusConflict, "closed", "the stream is closed")
		refused.header = map[string]string{headerClosed: "true", headerNext: offset(v.tail())}
		return nil, refused
	}
	if len(p.body) > 0 {
		if p.kind != v.Type {
			return nil, refuse(http.StatusConflict, "content_type", "the stream is %s", v.Type)
		}
		if err := l.addBody(ctx, v, p, a); err != nil {
			return nil, err
		}
	}
	if p.seq != "" {
		if p.seq <= v.Seq {
			return nil, refuse(http.StatusConflict, "seq", "%s is not above the last one", headerSeq)
		}
		v.Seq = p.seq
	}
	if p.close {
		v.Closed, v.ClosedBy = true, p.producer
	}
	if v.HasTTL {
		v.Used = time.Now()
	}
	if a.State = v.head.State; a.State != nil || p.seq != "" {
		a.State = v.state()
	}
	if len(a.Records) == 0 && a.Values == nil && bytes.Equal(a.State, v.head.State) {
		return nil, nil // only entries that are there
	}
	return a, nil
}

// addBody adds what a POST brings to an append: of a thread the entries that are new.
func (l *Log) addBody(ctx context.Context, v view, p posted, a *engine.Append) (err error) {
	if _, is := threadOf(v.name); is {
		entries, err := parseBody(p.body, p.run)
		if err != nil {
			return err
		}
		return l.addEntries(ctx, v.name, a, entries, &Appended{})
	}
	a.Records, err = cut(v.Type, p.body, false)
	return err
}

// producer is where a producer stands; nil for one that the stream does not know.
func (l *Log) producer(ctx context.Context, name, id string) (*producer, error) {
	raw, err := l.engine.Value(ctx, name, valueProducer+id)
	if err != nil || raw == nil {
		return nil, err
	}
	p := &producer{}
	return p, json.Unmarshal(raw, p)
}
