package server

import (
	"context"
	"errors"
	"math"
	"net/http"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/server/streams"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
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
		return s.streams.Read(w, r, g.Stream, a.live, q["offset"], a.types, g)
	}
	f := s.Log.Follow(g.Stream)
	defer f.Close()
	v, grown, err := f.Stat(r.Context())
	if err != nil {
		return noThread(err)
	}
	l := s.core.Lease(r, g)
	defer l.Free()
	if a.before != nil {
		return s.readBack(w, r, v, a, l)
	}
	after, err := request.ParseOffset(q["offset"], v.Tail())
	if err != nil {
		return err
	}
	if a.live != "" {
		if v, after, err = s.streams.Await(r.Context(), f, grown, v, after, a.types, l); err != nil {
			return noThread(err)
		}
		if after.Seq >= v.Tail() {
			return nothing(w, v, after)
		}
		if !a.types.All() && a.limit == 0 {
			a.limit = maxLimit // a piece, whose end is known before it is sent
		}
	}
	if a.limit > 0 {
		return s.readPiece(w, r, v, after, a, l)
	}
	request.SetNext(w.Header(), v, log.Offset{Seq: v.Tail()})
	w.Header().Set("Content-Type", ndjson)
	if r.Method == http.MethodHead {
		return nil // a Content-Length would cost reading all of it
	}
	return s.send(r.Context(), w, v, after, a.types, l)
}

// ndjson is the content type of entries, one a line.
const ndjson = "application/x-ndjson"

// noThread returns an error about a thread: ErrNoThread for one that does not exist.
func noThread(err error) error {
	if errors.Is(err, log.ErrAbsent) {
		return request.ErrNoThread
	}
	return err
}

// firstPiece bounds the first read of an answer, so that a short thread is a small request.
const firstPiece = 64 << 10

// send writes a thread's entries of the types behind an offset, up to the end in v. It holds one piece of them at a
// time.
func (s *Server) send(
	ctx context.Context, w http.ResponseWriter, v log.Stream, after log.Offset, types thread.Types, l *memory.Lease,
) error {
	out := s.core.Answer(ctx, w, 0)
	for most := firstPiece; after.Seq < v.Tail(); most = request.ReadChunk {
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
			out = s.core.Answer(ctx, w, memory.RecordBytes(records))
		} else if out.Size() < request.AnswerBuffer {
			out = s.core.Answer(ctx, w, request.AnswerBuffer)
		}
		p := log.Piece{Next: after}
		p.Add(records, v.Tail(), log.Bounds{Types: types, Records: math.MaxInt, Bytes: math.MaxInt})
		for _, rec := range p.Records {
			streams.WriteEntry(out, rec, "\n")
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
