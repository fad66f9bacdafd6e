package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/server/streams"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a piece of a thread.
const (
	maxLimit   = 1000     // entries
	pieceBytes = 8 << 20  // of entries, unless one alone has more
	scanBytes  = 32 << 20 // read for one piece: entries of other types are read and left out
	maxTypes   = 32       // prefixes of one parameter
	maxPrefix  = 64       // bytes of one
)

// asking has the parameters of a request to read a thread.
type asking struct {
	live   string
	limit  int      // entries at most; 0 without a limit
	before []string // the offset to read back from; nil to read on
	types  thread.Types
}

// parseAsked parses the query of a read of a thread, but for its offset.
//
//	live         limit         before   offset   result
//	another      any           any      any      400 live
//	any          not 1..1000   any      any      400 limit
//	sse          given         any      any      400 limit: an event has its own size
//	any          none          given    any      400 before: it needs a limit
//	any          any           given    given    400 before: one of them
//	given        any           given    any      400 before: nothing is appended there
func parseAsked(q url.Values) (a asking, err error) {
	for _, name := range []string{"live", "limit", "before", "types", "without"} {
		if len(q[name]) > 1 {
			return a, request.Refuse(http.StatusBadRequest, "query", "more than one %s", name)
		}
	}
	a.live = q.Get("live")
	if a.live != "" && a.live != "long-poll" && a.live != "sse" {
		return a, request.Refuse(http.StatusBadRequest, "live", "live=%.20q is not served: want long-poll or sse",
			a.live)
	}
	if q.Has("limit") {
		var ok bool
		if a.limit, ok = parseLimit(q.Get("limit")); !ok {
			return a, request.Refuse(http.StatusBadRequest, "limit", "limit=%.20q: want a number from 1 to %d",
				q.Get("limit"), maxLimit)
		}
		if a.live == "sse" {
			return a, request.Refuse(http.StatusBadRequest, "limit",
				"limit and live=sse exclude each other: read pieces, then follow from the last one's %s",
				request.HeaderNext)
		}
	}
	a.before = q["before"]
	switch {
	case a.before == nil:
	case q.Has("offset"):
		return a, request.Refuse(http.StatusBadRequest, "before",
			"before and offset exclude each other: read back, or on")
	case a.live != "":
		return a, request.Refuse(http.StatusBadRequest, "before",
			"before and live exclude each other: no entry is appended before an offset")
	case a.limit == 0:
		return a, request.Refuse(http.StatusBadRequest, "before", "before needs a limit, from 1 to %d", maxLimit)
	}
	const want = "%s=%.80q: want 1 to %d prefixes of 1 to %d bytes, with commas between"
	var ok bool
	if a.types.Of, ok = parsePrefixes(q, "types"); !ok {
		return a, request.Refuse(http.StatusBadRequest, "types", want, "types", q.Get("types"), maxTypes, maxPrefix)
	}
	if a.types.Without, ok = parsePrefixes(q, "without"); !ok {
		return a, request.Refuse(http.StatusBadRequest, "without", want, "without", q.Get("without"), maxTypes,
			maxPrefix)
	}
	return a, nil
}

// parsePrefixes parses the prefixes of payload types in a parameter; nil without it.
func parsePrefixes(q url.Values, name string) (prefixes []string, ok bool) {
	if !q.Has(name) {
		return nil, true
	}
	prefixes = strings.Split(q.Get(name), ",")
	bad := func(prefix string) bool { return prefix == "" || len(prefix) > maxPrefix }
	return prefixes, len(prefixes) <= maxTypes && !slices.ContainsFunc(prefixes, bad)
}

// parseLimit parses a number from 1 to maxLimit.
func parseLimit(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && n <= maxLimit && strconv.Itoa(n) == s
}

func (a asking) bounds() log.Bounds {
	return log.Bounds{Types: a.types, Records: a.limit, Bytes: pieceBytes}
}

// readPiece serves the entries behind an offset, up to the request's limit.
func (s *Server) readPiece(
	w http.ResponseWriter, r *http.Request, v log.Stream, after log.Offset, a asking, l *memory.Lease,
) error {
	b, p := a.bounds(), log.Piece{Prev: after, Next: after}
	err := s.collect(r.Context(), l, &p, func() bool { return p.Next.Seq < v.Tail() && !p.Full(b) },
		func(most int) ([]engine.Record, error) { return s.Log.Read(r.Context(), v, p.Next.Seq, v.Tail(), most) },
		func(records []engine.Record) { p.Add(records, v.Tail(), b) })
	if err != nil {
		return err
	}
	if a.live != "" && len(p.Records) == 0 {
		return nothing(w, v, p.Next)
	}
	return s.sendPiece(w, r, v, p)
}

// readBack serves the entries before an offset, up to the request's limit, with the offset before the first of them.
func (s *Server) readBack(w http.ResponseWriter, r *http.Request, v log.Stream, a asking, l *memory.Lease) error {
	until, err := request.ParseOffset(a.before, v.Tail())
	if err != nil {
		return err
	}
	b, p := a.bounds(), log.Piece{Prev: until, Next: until}
	err = s.collect(r.Context(), l, &p, func() bool { return p.Prev != log.Offset{} && !p.Full(b) },
		func(most int) ([]engine.Record, error) {
			n := b.Records - len(p.Records)
			if !b.Types.All() {
				n = scanRecords
			}
			return s.Log.ReadBack(r.Context(), v, p.Prev.UpTo(), n, most)
		},
		func(records []engine.Record) { p.AddBack(records, b) })
	if err != nil {
		return err
	}
	w.Header().Set(request.HeaderPrev, request.Place(p.Prev))
	return s.sendPiece(w, r, v, p)
}

// scanRecords is how many records are read back at once to find those of some types.
const scanRecords = 4096

// collect reads until more reports false, or scanBytes were read, and adds what it reads to p. The lease is charged
// with the piece.
func (s *Server) collect(
	ctx context.Context, l *memory.Lease, p *log.Piece, more func() bool,
	read func(most int) ([]engine.Record, error), add func([]engine.Record),
) error {
	for seen, most := 0, firstPiece; more() && seen < scanBytes; most = request.ReadChunk {
		records, err := l.Records(ctx, func() ([]engine.Record, error) { return read(most) })
		if err != nil {
			return err
		}
		seen += memory.RecordBytes(records)
		add(records)
		l.Keep(memory.RecordBytes(p.Records))
	}
	return nil
}

// sendPiece answers with a piece.
func (s *Server) sendPiece(w http.ResponseWriter, r *http.Request, v log.Stream, p log.Piece) error {
	w.Header().Set("Content-Type", ndjson)
	request.SetNext(w.Header(), v, p.Next)
	w.WriteHeader(http.StatusOK)
	out := s.core.Answer(r.Context(), w, memory.RecordBytes(p.Records))
	for _, rec := range p.Records {
		streams.WriteEntry(out, rec, "\n")
	}
	_ = out.Flush() // the reader is gone, or too slow
	return nil
}

// nothing answers a long-poll that found no entry.
func nothing(w http.ResponseWriter, v log.Stream, after log.Offset) error {
	request.SetNext(w.Header(), v, after)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// entry serves one entry by its id.
func (s *Server) entry(w http.ResponseWriter, r *http.Request, g token.Grant) error {
	w.Header().Set("Cache-Control", "no-store")
	f := s.Log.Follow(g.Stream)
	defer f.Close()
	v, _, err := f.Stat(r.Context())
	if err != nil {
		return noThread(err)
	}
	id, found := r.PathValue("entry"), false
	l := s.core.Lease(r, g)
	defer l.Free()
	records, err := l.Records(r.Context(), func() ([]engine.Record, error) {
		rec, ok, err := s.Log.Entry(r.Context(), v, id)
		found = ok
		return []engine.Record{rec}, err
	})
	switch {
	case err != nil:
		return err
	case !found:
		return request.Refuse(http.StatusNotFound, "no_entry", "the thread has no entry %.200q", id)
	case len(records[0].Data) == 0:
		return request.Refuse(http.StatusNotFound, "removed", "the entry %.200q was removed from the thread", id)
	}
	w.Header().Set("Content-Type", request.JSON)
	w.WriteHeader(http.StatusOK)
	out := s.core.Answer(r.Context(), w, memory.RecordBytes(records))
	streams.WriteEntry(out, records[0], "\n")
	_ = out.Flush() // the reader is gone, or too slow
	return nil
}
