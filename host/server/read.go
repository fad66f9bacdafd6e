package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/token"
)

// read serves a thread's entries as NDJSON, or as events.
func (s *Server) read(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	q := r.URL.Query()
	live := q.Get("live")
	if live == "sse" {
		w.Header().Set("Cache-Control", "no-store")
		return s.getFrom(w, r, g.Stream, live, q["offset"], g)
	}
	if live != "" && live != "long-poll" {
		return refuse(http.StatusBadRequest, "live", "live=%.20q is not served: want long-poll or sse", live)
	}
	f := s.Log.Follow(g.Stream)
	defer f.Close()
	v, grown, err := s.thread(r.Context(), f)
	if err != nil {
		return err
	}
	after, err := parseOffset(q["offset"], v.Tail())
	if err != nil {
		return err
	}
	if live != "" && after == v.Tail() {
		done := s.metrics.reader(readerLongPoll)
		err := s.await(r.Context(), grown)
		done()
		if err == nil {
			v, _, err = s.thread(r.Context(), f)
		}
		if err != nil {
			return err
		}
	}
	w.Header().Set(headerNext, offset(v.Tail()))
	w.Header().Set(headerUpToDate, "true")
	w.Header().Set("Cache-Control", "no-store")
	if live != "" && after == v.Tail() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	if r.Method == http.MethodHead {
		return nil // a Content-Length would cost reading all of it
	}
	l := s.lease(r, g)
	defer l.free()
	return s.send(r.Context(), w, v, after, l)
}

// thread returns the thread that f follows.
func (s *Server) thread(ctx context.Context, f *log.Follower) (log.Stream, <-chan struct{}, error) {
	v, grown, err := f.Stat(ctx)
	if errors.Is(err, log.ErrAbsent) {
		err = refuse(http.StatusNotFound, "not_found", "the thread was never written")
	}
	return v, grown, err
}

// await returns when the thread has changed, or after the long-poll's time.
func (s *Server) await(ctx context.Context, grown <-chan struct{}) error {
	timer := time.NewTimer(s.longPoll())
	defer timer.Stop()
	select {
	case <-grown:
	case <-timer.C:
	case <-s.closing().Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// firstPiece bounds the first read of an answer, so that a short thread is a small request.
const firstPiece = 64 << 10

// send writes a thread's entries behind an offset, up to the end in v. It holds one piece of them at a time.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, v log.Stream, after uint64, l *lease) error {
	out := s.answer(ctx, w, 0)
	for most := firstPiece; after < v.Tail(); most = readChunk {
		records, err := l.records(ctx, s.Log, v, after, v.Tail(), most)
		switch {
		case ctx.Err() != nil:
			return nil // the reader is gone
		case err != nil && most == firstPiece:
			return err
		case err != nil:
			// The status is sent. Breaking the connection marks the answer as incomplete.
			if !errors.As(err, new(*problem)) {
				s.Logger.Error("read interrupted", "stream", v.Name, "error", err)
			}
			panic(http.ErrAbortHandler)
		case len(records) == 0:
			return nil // the rest was removed since
		}
		if most == firstPiece {
			w.WriteHeader(http.StatusOK)
			out = s.answer(ctx, w, recordBytes(records))
		} else if out.Size() < answerBuffer {
			out = s.answer(ctx, w, answerBuffer)
		}
		for _, rec := range records {
			writeEntry(out, rec, "\n")
		}
		after = records[len(records)-1].Seq
		if out.Flush() != nil {
			return nil // the reader is gone, or too slow
		}
		clear(records)
		l.drop()
	}
	return nil
}

// longPoll returns how long a reader waits for a change.
func (s *Server) longPoll() time.Duration {
	if s.LongPoll == 0 {
		return 20 * time.Second
	}
	return s.LongPoll
}

// parseOffset parses the offset behind which to read.
func parseOffset(given []string, tail uint64) (uint64, error) {
	if len(given) > 1 {
		return 0, refuse(http.StatusBadRequest, "offset", "more than one offset")
	}
	if len(given) == 0 {
		return 0, nil
	}
	if given[0] == "now" {
		return tail, nil
	}
	at, ok := parsePlace(given[0])
	if !ok || at > tail {
		return 0, refuse(
			http.StatusBadRequest,
			"offset",
			"offset %.40q is none of this stream's: want 0, -1, now or a %s",
			given[0],
			headerNext,
		)
	}
	return at, nil
}

// parsePlace parses an offset. The zeros with a line between are the start in other servers of the protocol.
func parsePlace(s string) (uint64, bool) {
	switch s {
	case "0", "-1", "0000000000000000_0000000000000000":
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 63)
	return n, err == nil && len(s) == 20
}

// offset returns a place in a stream as clients have it: opaque, and sorted as text.
func offset(seq uint64) string {
	b := []byte("00000000000000000000")
	for i := len(b) - 1; seq > 0; i-- {
		b[i] += byte(seq % 10)
		seq /= 10
	}
	return string(b)
}
