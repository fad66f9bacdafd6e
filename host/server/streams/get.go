package streams

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/url"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// chunk is how many bytes of a stream one answer of the protocol has, unless one message is larger. Clients read on
// from there.
const chunk = 1 << 20

// get serves GET.
func (a *API) get(w http.ResponseWriter, r *http.Request, name string, g token.Grant) error {
	q := r.URL.Query()
	live, err := parseLive(q)
	if err != nil {
		return err
	}
	return a.Read(w, r, name, live, q["offset"], thread.Types{}, g)
}

// Read serves a stream from an offset, its start without one, and waits for a change as live asks for. types are for
// a thread's events.
func (a *API) Read(
	w http.ResponseWriter, r *http.Request, name, live string, offsets []string, types thread.Types, g token.Grant,
) error {
	f := a.Log.Follow(name)
	defer f.Close()
	v, grown, err := f.Stat(r.Context())
	if err != nil {
		return err
	}
	if last := r.Header.Get("Last-Event-ID"); live == "sse" && last != "" {
		offsets = []string{last} // a browser that reconnects
	}
	after, err := request.ParseOffset(offsets, v.Tail())
	if err != nil {
		return err
	}
	a.Log.Touch(r.Context(), v)
	l := a.Lease(r, g)
	defer l.Free()
	switch live {
	case "sse":
		return a.events(w, r, f, v, &liveReader{after: after, types: types}, l)
	case "long-poll":
		return a.poll(w, r, f, grown, v, after, l)
	}
	return a.catchUp(w, r, v, after, l)
}

// parseLive parses how a reader wants to wait; "" for not.
func parseLive(q url.Values) (string, error) {
	live := q.Get("live")
	switch live {
	case "":
	case "long-poll", "sse":
		if _, there := q["offset"]; !there {
			return "", request.Refuse(http.StatusBadRequest, "offset", "live=%s needs an offset", live)
		}
	default:
		return "", request.Refuse(http.StatusBadRequest, "live", "live=%.20q is not served: want long-poll or sse",
			live)
	}
	return live, nil
}

// catchUp answers with what the stream has now.
func (a *API) catchUp(
	w http.ResponseWriter, r *http.Request, v log.Stream, after log.Offset, l *memory.Lease,
) error {
	p, err := a.Content(r.Context(), v, after, thread.Types{}, l)
	if err != nil {
		return err
	}
	h := w.Header()
	if r.URL.Query().Get("offset") != "now" {
		visibility := "private"
		if a.Insecure {
			visibility = "public"
		}
		h.Set("Cache-Control", visibility+", max-age=60, stale-while-revalidate=300")
		h.Set("ETag", etag(v, after, p.Next))
		if r.Header.Get("If-None-Match") == h.Get("ETag") {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	return a.give(w, r, v, p)
}

// Content returns the part of a stream behind an offset that fits into one answer, without entries of other types.
func (a *API) Content(
	ctx context.Context, v log.Stream, after log.Offset, types thread.Types, l *memory.Lease,
) (log.Piece, error) {
	p := log.Piece{Prev: after, Next: after}
	records, err := l.Records(ctx, func() ([]engine.Record, error) {
		return a.Log.Read(ctx, v, after.Seq, v.Tail(), chunk)
	})
	if err == nil {
		p.Add(records, v.Tail(), log.Bounds{Types: types, Records: math.MaxInt, Bytes: math.MaxInt})
	}
	return p, err
}

// writeRecords writes records in the form of the stream's content type. An error stays in w.
func writeRecords(w io.Writer, v log.Stream, records []engine.Record) {
	if !v.IsJSON() {
		for _, r := range records {
			_, _ = w.Write(r.Data)
		}
		return
	}
	between := "["
	for _, r := range records {
		_, _ = io.WriteString(w, between)
		if request.IsThread(v.Name) {
			WriteEntry(w, r, "")
		} else {
			_, _ = w.Write(r.Data)
		}
		between = ","
	}
	if between == "[" {
		_, _ = io.WriteString(w, between)
	}
	_, _ = io.WriteString(w, "]")
}

// WriteEntry writes a thread's entry with the time of its receipt, followed by end. An error stays in w.
func WriteEntry(w io.Writer, r engine.Record, end string) {
	_, _ = w.Write(r.Data[:len(r.Data)-1])
	var b [64]byte
	at := append(b[:0], `,"at":"`...)
	at = r.At.UTC().AppendFormat(at, thread.TimeFormat)
	_, _ = w.Write(append(append(at, `"}`...), end...))
}

// give answers with a stream's content.
func (a *API) give(w http.ResponseWriter, r *http.Request, v log.Stream, p log.Piece) error {
	h := w.Header()
	h.Set("Content-Type", v.Type)
	request.SetNext(h, v, p.Next)
	w.WriteHeader(http.StatusOK)
	out := a.Answer(r.Context(), w, memory.RecordBytes(p.Records))
	writeRecords(out, v, p.Records)
	_ = out.Flush() // the reader is gone, or too slow
	return nil
}

// poll serves long-poll: it answers at once where the stream has more, or once it has.
func (a *API) poll(
	w http.ResponseWriter, r *http.Request, f *log.Follower, grown <-chan struct{}, v log.Stream, after log.Offset,
	l *memory.Lease,
) (err error) {
	if v, after, err = a.Await(r.Context(), f, grown, v, after, thread.Types{}, l); err != nil {
		return err
	}
	h := w.Header()
	if !v.Closed {
		h.Set(request.HeaderCursor, cursor(time.Now(), r.URL.Query().Get("cursor")))
	}
	if after.Seq >= v.Tail() {
		request.SetNext(h, v, log.Offset{Seq: v.Tail()})
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	p, err := a.Content(r.Context(), v, after, thread.Types{}, l)
	if err != nil {
		return err
	}
	return a.give(w, r, v, p)
}

// Await returns once a stream has an entry of the types behind an offset or is closed, or after the long-poll's time.
// It returns the stream as it is then, and the offset moved past entries of other types.
func (a *API) Await(
	ctx context.Context, f *log.Follower, grown <-chan struct{}, v log.Stream, after log.Offset, types thread.Types,
	l *memory.Lease,
) (log.Stream, log.Offset, error) {
	timer := time.NewTimer(a.LongPoll)
	defer timer.Stop()
	defer a.Metrics.Reader(metrics.LongPoll)()
	for over := false; ; {
		for after.Seq < v.Tail() {
			if types.All() {
				return v, after, nil
			}
			p, err := a.Content(ctx, v, after, types, l)
			l.Drop()
			if err != nil || len(p.Records) > 0 {
				return v, after, err
			}
			after = p.Next
		}
		if over || v.Closed {
			return v, after, nil
		}
		select {
		case <-grown:
		case <-timer.C:
			over = true
		case <-a.Closing.Done():
			over = true
		case <-ctx.Done():
			return v, after, ctx.Err()
		}
		var err error
		if v, grown, err = f.Stat(ctx); err != nil {
			return v, after, err
		}
	}
}
