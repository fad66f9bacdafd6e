package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Server is the thread API over a Log. Its fields must not change while it serves.
type Server struct {
	Log    *Log
	Secret []byte // signs and verifies tokens; at least MinSecret bytes
	// LongPoll is how long a reader is kept waiting for something new; 0 is 20 s.
	LongPoll time.Duration
	// Closing ends the waits of readers when it is done, so that a server can stop.
	Closing context.Context
	Logger  *slog.Logger

	tokens verifier
}

// Sizes of what is read from the log at once for one reader, and how long he may take to accept it: a slow reader is dropped, and comes again
// where he was.
const (
	readChunk    = 1 << 20
	writeTimeout = 30 * time.Second
	bodyTimeout  = 2 * time.Minute // for a client to send what it appends
)

// Headers of the Durable Streams protocol.
const (
	headerNext     = "Stream-Next-Offset"
	headerUpToDate = "Stream-Up-To-Date"
)

// Handler serves the thread API below /api/stream, and /healthz and /readyz.
func (s *Server) Handler() http.Handler {
	s.tokens.secret = s.Secret
	mux := http.NewServeMux()
	name := "/api/stream/" + "{stream}"
	mux.HandleFunc("POST "+name, s.as(ScopeWrite, s.append))
	mux.HandleFunc("GET "+name, s.as(ScopeRead, s.read))
	mux.HandleFunc("POST "+name+"/token", s.as(ScopeRenew, s.renew))
	ok := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "ok")
	}
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /readyz", ok)
	return mux
}

// problem is an answer that is no success.
type problem struct {
	status  int
	code    string
	message string
	entries []thread.BadEntry
}

func (p *problem) Error() string { return p.message }

func refuse(status int, code, format string, args ...any) *problem {
	return &problem{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// as wraps a handler for whoever's token has the scope, on the thread that the path names.
func (s *Server) as(scope string, h func(http.ResponseWriter, *http.Request, Grant) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g, err := s.authorize(r, scope)
		if err == nil {
			err = h(w, r, g)
		}
		if err == nil {
			return
		}
		var p *problem
		if !errors.As(err, &p) {
			if r.Context().Err() != nil {
				return // the client is gone
			}
			s.Logger.Error("request failed", "method", r.Method, "stream", r.PathValue("stream"), "error", err)
			p = refuse(http.StatusServiceUnavailable, "unavailable", "the log can't do this now")
			w.Header().Set("Retry-After", "1")
		}
		if p.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(p.status)
		var body struct {
			Error struct {
				Code    string            `json:"code"`
				Message string            `json:"message"`
				Entries []thread.BadEntry `json:"entries,omitempty"`
			} `json:"error"`
		}
		body.Error.Code, body.Error.Message, body.Error.Entries = p.code, p.message, p.entries
		_, _ = w.Write(append(thread.Marshal(body), '\n')) // the client may be gone
	}
}

// authorize checks the request's token and that it is for the thread in the path.
func (s *Server) authorize(r *http.Request, scope string) (Grant, error) {
	id, ok := strings.CutPrefix(r.PathValue("stream"), thread.StreamName(""))
	if !ok || !thread.ValidThread(id) {
		return Grant{}, refuse(http.StatusNotFound, "not_found", "no such stream: want %s<threadId>, threadId of A-Z a-z 0-9 _ -", thread.StreamName(""))
	}
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") || token == "" {
		return Grant{}, refuse(http.StatusUnauthorized, "no_token", "a bearer token is required")
	}
	g, err := s.tokens.check(strings.TrimSpace(token))
	switch {
	case err != nil:
		return Grant{}, refuse(http.StatusUnauthorized, "invalid_token", "%s", err)
	case g.Thread != id:
		return Grant{}, refuse(http.StatusForbidden, "wrong_thread", "the token is for another thread")
	case !g.Allows(scope):
		return Grant{}, refuse(http.StatusForbidden, "missing_scope", "the token lacks the scope %s", scope)
	}
	return g, nil
}

// append takes one entry or an array of them.
func (s *Server) append(w http.ResponseWriter, r *http.Request, g Grant) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "content_type", "want application/json")
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // a reader without deadlines is a test's
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, thread.MaxBody))
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", thread.MaxBody)
	case err != nil:
		return refuse(http.StatusBadRequest, "body", "the body can't be read: %v", err)
	}
	entries, err := parseBody(body, g.Run)
	if err != nil {
		return err
	}
	res, err := s.Log.Append(r.Context(), g.Thread, entries)
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		return &problem{http.StatusConflict, "conflict", conflict.Error(), conflict.Entries}
	}
	if err != nil {
		return err
	}
	w.Header().Set(headerNext, offset(res.Next))
	return answer(w, struct {
		NextOffset string `json:"nextOffset"`
		Appended   int    `json:"appended"`
		Duplicates int    `json:"duplicates"`
	}{offset(res.Next), res.Appended, res.Duplicates})
}

// parseBody reads one entry or an array of entries. What is wrong is said of each entry, and the first kind of trouble decides the status.
func parseBody(body []byte, run string) ([]thread.Entry, error) {
	body = bytes.TrimSpace(body)
	raws := []json.RawMessage{body}
	if len(body) > 0 && body[0] == '[' {
		entries, err := thread.ParseEntries(body)
		if err == nil && len(entries) > 0 && len(entries) <= thread.MaxEntries && fit(entries, run) {
			return entries, nil
		}
		// Something is wrong: now each entry is looked at by itself.
		raws = nil
		if err := json.Unmarshal(body, &raws); err != nil {
			return nil, refuse(http.StatusBadRequest, "json", "the body is no JSON: %v", err)
		}
		if len(raws) == 0 {
			return nil, refuse(http.StatusBadRequest, "empty", "the array has no entries")
		}
		if len(raws) > thread.MaxEntries {
			return nil, refuse(http.StatusRequestEntityTooLarge, "too_many", "the array has %d entries, more than %d", len(raws), thread.MaxEntries)
		}
	}
	entries := make([]thread.Entry, len(raws))
	var bad *problem
	say := func(i int, status int, code, reason string) {
		if bad == nil {
			bad = refuse(status, code, "entries are refused, and none was appended")
		}
		if bad.status == status {
			bad.entries = append(bad.entries, thread.BadEntry{Index: i, ID: entries[i].ID, Reason: reason})
		}
	}
	for i, raw := range raws {
		e, err := thread.ParseEntry(raw)
		entries[i] = e
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF): // only where there is no array around it
			return nil, refuse(http.StatusBadRequest, "json", "the body is no JSON: %v", err)
		case len(raw) > thread.MaxEntry:
			say(i, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the entry has %d bytes, more than %d", len(raw), thread.MaxEntry))
		case err != nil:
			say(i, http.StatusBadRequest, "invalid", err.Error())
		case run != "" && !ofRun(e, run):
			say(i, http.StatusForbidden, "wrong_run", "the token may post the signals of run "+run+" only")
		}
	}
	if bad != nil {
		return nil, bad
	}
	return entries, nil
}

// fit reports whether all entries are small enough, beyond doubt, and may be posted with a token for run.
func fit(entries []thread.Entry, run string) bool {
	for _, e := range entries {
		if len(e.Payload) > thread.MaxEntry-1<<10 || run != "" && !ofRun(e, run) {
			return false
		}
	}
	return true
}

// ofRun reports whether a token for run may post the entry: anything but another run's signals.
func ofRun(e thread.Entry, run string) bool {
	var sig thread.Signal
	_ = json.Unmarshal(e.Payload, &sig) // it was checked: the payload is an object, and what else is in it is not asked here
	return !strings.HasPrefix(sig.Type, "signal.") || sig.RunID == run
}

// read gives a thread's entries as NDJSON.
func (s *Server) read(w http.ResponseWriter, r *http.Request, g Grant) error {
	q := r.URL.Query()
	wait := false
	switch live := q.Get("live"); live {
	case "":
	case "long-poll":
		wait = true
	default:
		return refuse(http.StatusBadRequest, "live", "live=%.20q is not served: want long-poll", live)
	}
	f := s.Log.follow(thread.StreamName(g.Thread))
	defer f.close()
	head, grown, err := f.look(r.Context())
	if err != nil {
		return err
	}
	if !head.Exists() {
		return refuse(http.StatusNotFound, "not_found", "the thread was never written")
	}
	last := head.Data
	after, err := parseOffset(q["offset"], last)
	if err != nil {
		return err
	}
	if wait && after == last {
		if last, err = s.await(r.Context(), f, grown); err != nil {
			return err
		}
	}
	w.Header().Set(headerNext, offset(last))
	w.Header().Set(headerUpToDate, "true")
	w.Header().Set("Cache-Control", "no-store")
	if wait && after == last {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	return s.send(r.Context(), w, g.Thread, after, last)
}

// await returns the offset of the last entry once the thread has grown, or when it was waited for long enough.
func (s *Server) await(ctx context.Context, f *follower, grown <-chan struct{}) (uint64, error) {
	limit := s.LongPoll
	if limit == 0 {
		limit = 20 * time.Second
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-grown:
	case <-timer.C:
	case <-s.Closing.Done():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	head, _, err := f.look(ctx)
	return head.Data, err
}

// send writes the entries after seq after up to seq last.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, threadID string, after, last uint64) error {
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	var buf []byte
	for after < last {
		records, err := s.Log.engine.Read(ctx, thread.StreamName(threadID), after, last, readChunk)
		if err == nil && len(records) == 0 {
			err = errors.New("entries are missing in the log")
		}
		if err != nil {
			// The status is out already. A connection that breaks says that this was not all.
			s.Logger.Error("a read broke off", "stream", thread.StreamName(threadID), "error", err)
			panic(http.ErrAbortHandler)
		}
		buf = buf[:0]
		for _, rec := range records {
			buf = append(buf, rec.Data[:len(rec.Data)-1]...)
			buf = append(buf, `,"at":"`...)
			buf = rec.At.UTC().AppendFormat(buf, thread.TimeFormat)
			buf = append(buf, "\"}\n"...)
			after = rec.Seq
		}
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a writer without deadlines is a test's
		if _, err := w.Write(buf); err != nil {
			return nil // the reader is gone
		}
	}
	return nil
}

// renew gives a fresh write token for the renew token's thread and run.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, g Grant) error {
	if g.Run != "" {
		ended, ok, err := s.Log.EndedAt(r.Context(), g.Thread, g.Run+".end.0")
		if err != nil {
			return err
		}
		if ok && time.Since(ended) > renewAfter {
			return refuse(http.StatusUnauthorized, "run_ended", "run %s ended more than %v ago", g.Run, renewAfter)
		}
	}
	until := time.Now().Add(WriteTTL)
	token, err := Mint(s.Secret, Grant{Thread: g.Thread, Scope: []string{ScopeWrite}, Run: g.Run, House: g.House, Until: until})
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return answer(w, struct {
		JWT       string `json:"jwt"`
		ExpiresAt string `json:"expiresAt"`
	}{token, thread.Stamp(until)})
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(thread.Marshal(v), '\n')) // the client may be gone
	return nil
}

// offset is a place in a thread, as clients know it: opaque, and sorted as text.
func offset(seq uint64) string { return fmt.Sprintf("%020d", seq) }

// parseOffset is the seq after which to read.
func parseOffset(given []string, last uint64) (uint64, error) {
	if len(given) > 1 {
		return 0, refuse(http.StatusBadRequest, "offset", "more than one offset")
	}
	if len(given) == 0 {
		return 0, nil
	}
	switch o := given[0]; o {
	case "0", "-1":
		return 0, nil
	case "now":
		return last, nil
	default:
		seq, err := strconv.ParseUint(o, 10, 63)
		if err != nil || len(o) != 20 || seq > last {
			return 0, refuse(http.StatusBadRequest, "offset", "offset %.40q is none of this thread's: want 0, -1, now or a %s", o, headerNext)
		}
		return seq, nil
	}
}
