package server

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/token"
)

// read serves a thread's entries as NDJSON, or as events.
func (s *Server) read(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	q := r.URL.Query()
	a, err := parseAsked(q)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	if a.live == "sse" {
		return s.getFrom(w, r, g.Stream, a.live, q["offset"], a.types, g)
	}
	f := s.Log.Follow(g.Stream)
	defer f.Close()
	v, grown, err := s.thread(r.Context(), f)
	if err != nil {
		return err
	}
	l := s.lease(r, g)
	defer l.Free()
	if a.before != nil {
		return s.readBack(w, r, v, a, l)
	}
	after, err := parseOffset(q["offset"], v.Tail())
	if err != nil {
		return err
	}
	if a.live != "" {
		if v, after, err = s.await(r.Context(), f, grown, v, after, a.types, l); err != nil {
			return err
		}
		if after.Seq >= v.Tail() {
			return nothing(w, v, after)
		}
		if len(a.types) > 0 && a.limit == 0 {
			a.limit = maxLimit // a piece, whose end is known before it is sent
		}
	}
	if a.limit > 0 {
		return s.readPiece(w, r, v, after, a, l)
	}
	w.Header().Set(headerNext, offset(v.Tail()))
	w.Header().Set(headerUpToDate, "true")
	w.Header().Set("Content-Type", ndjson)
	if r.Method == http.MethodHead {
		return nil // a Content-Length would cost reading all of it
	}
	return s.send(r.Context(), w, v, after, a.types, l)
}

// ndjson is the content type of entries, one a line.
const ndjson = "application/x-ndjson"

// thread returns the thread that f follows.
func (s *Server) thread(ctx context.Context, f *log.Follower) (log.Stream, <-chan struct{}, error) {
	v, grown, err := f.Stat(ctx)
	if errors.Is(err, log.ErrAbsent) {
		err = refuse(http.StatusNotFound, "not_found", "the thread was never written")
	}
	return v, grown, err
}

// await returns once the thread has an entry of the types behind an offset, or after the long-poll's time. It returns
// the thread as it is then, and the offset moved past entries of other types.
func (s *Server) await(
	ctx context.Context,
	f *log.Follower,
	grown <-chan struct{},
	v log.Stream,
	after log.Offset,
	types log.Types,
	l *memory.Lease,
) (log.Stream, log.Offset, error) {
	timer := time.NewTimer(s.longPoll())
	defer timer.Stop()
	done := s.metrics.reader(readerLongPoll)
	defer done()
	for over := false; ; {
		for after.Seq < v.Tail() {
			if len(types) == 0 {
				return v, after, nil
			}
			p, err := s.content(ctx, v, after, types, l)
			l.Drop()
			if err != nil || len(p.Records) > 0 {
				return v, after, err
			}
			after = p.Next
		}
		if over {
			return v, after, nil
		}
		select {
		case <-grown:
		case <-timer.C:
			over = true
		case <-s.closing().Done():
			over = true
		case <-ctx.Done():
			return v, after, ctx.Err()
		}
		var err error
		if v, grown, err = s.thread(ctx, f); err != nil {
			return v, after, err
		}
	}
}

// firstPiece bounds the first read of an answer, so that a short thread is a small request.
const firstPiece = 64 << 10

// send writes a thread's entries of the types behind an offset, up to the end in v. It holds one piece of them at a
// time.
func (s *Server) send(
	ctx context.Context, w http.ResponseWriter, v log.Stream, after log.Offset, types log.Types, l *memory.Lease,
) error {
	out := s.answer(ctx, w, 0)
	for most := firstPiece; after.Seq < v.Tail(); most = readChunk {
		records, err := l.Records(ctx, func() ([]engine.Record, error) {
			return s.Log.Read(ctx, v, after.Seq, v.Tail(), most)
		})
		switch {
		case ctx.Err() != nil:
			return nil // the reader is gone
		case err != nil && most == firstPiece:
			return err
		case err != nil:
			// The status is sent. Breaking the connection marks the answer as incomplete.
			if !errors.Is(err, memory.ErrBusy) && !errors.Is(err, memory.ErrShare) {
				s.Logger.Error("read interrupted", "stream", v.Name, "error", err)
			}
			panic(http.ErrAbortHandler)
		case len(records) == 0:
			return nil // the rest was removed since
		}
		if most == firstPiece {
			w.WriteHeader(http.StatusOK)
			out = s.answer(ctx, w, memory.RecordBytes(records))
		} else if out.Size() < answerBuffer {
			out = s.answer(ctx, w, answerBuffer)
		}
		p := log.Piece{Next: after}
		p.Add(records, v.Tail(), log.Bounds{Types: types, Records: math.MaxInt, Bytes: math.MaxInt})
		for _, rec := range p.Records {
			writeEntry(out, rec, "\n")
		}
		after = p.Next
		if out.Flush() != nil {
			return nil // the reader is gone, or too slow
		}
		clear(records)
		clear(p.Records)
		l.Drop()
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
func parseOffset(given []string, tail uint64) (log.Offset, error) {
	if len(given) > 1 {
		return log.Offset{}, refuse(http.StatusBadRequest, "query", "more than one offset")
	}
	if len(given) == 0 {
		return log.Offset{}, nil
	}
	if given[0] == "now" {
		return log.Offset{Seq: tail}, nil
	}
	at, ok := parsePlace(given[0])
	switch {
	case !ok:
		return at,
			refuse(http.StatusBadRequest, "offset", "offset %.40q is none of this stream's: want 0, -1, now or a %s",
				given[0], headerNext)
	case at.Seq > tail || at.Seq == tail && at.Part > 0:
		return at, refuse(http.StatusBadRequest, "beyond_tail", "offset %.40s is beyond the stream's end, %s: "+
			"the stream is another one, or was restored from an older backup; read it from 0",
			given[0], offset(tail)).with(headerNext, offset(tail))
	}
	return at, nil
}

// partDigits is how many digits of an offset have its Part.
const partDigits = 6

// parsePlace parses an offset. The zeros with a line between are the start in other servers of the protocol.
func parsePlace(s string) (log.Offset, bool) {
	switch s {
	case "0", "-1", "0000000000000000_0000000000000000":
		return log.Offset{}, true
	}
	seq, part, within := strings.Cut(s, "_")
	n, err := strconv.ParseUint(seq, 10, 63)
	if err != nil || len(seq) != 20 || within && len(part) != partDigits {
		return log.Offset{}, false
	}
	if !within {
		return log.Offset{Seq: n}, true
	}
	k, err := strconv.ParseUint(part, 10, 31)
	return log.Offset{Seq: n, Part: int(k)}, err == nil
}

// place returns a place in a stream as clients have it: opaque, and sorted as text.
func place(o log.Offset) string {
	if o.Part == 0 {
		return offset(o.Seq)
	}
	part := offset(uint64(o.Part))
	return offset(o.Seq) + "_" + part[len(part)-partDigits:]
}

// offset is place for the end of an append.
func offset(seq uint64) string {
	b := []byte("00000000000000000000")
	for i := len(b) - 1; seq > 0; i-- {
		b[i] += byte(seq % 10)
		seq /= 10
	}
	return string(b)
}
