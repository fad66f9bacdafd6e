package stream

import (
	"bytes"
	"cmp"
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

	"arbe.0sk.ar/runner/host/stream/store"
	"arbe.0sk.ar/runner/thread"
)

// Server is the thread API over a Log. Its fields must not change while it serves.
type Server struct {
	Log     *Log
	Secrets [][]byte // verify tokens, and the first one signs them; each has at least MinSecret bytes
	// Open serves the Durable Streams protocol to everybody. It is for the protocol's test suite.
	Open bool
	// LongPoll is how long a reader is kept waiting for something new; 0 is 20 s.
	LongPoll time.Duration
	// Patience is how long a reader may take to accept a piece of what he reads, before he is dropped; 0 is 10 s. He comes again from where he was.
	Patience time.Duration
	// Closing ends the waits of readers when it is done, so that a server can stop.
	Closing context.Context
	Logger  *slog.Logger

	tokens  verifier
	metrics *metrics
}

// Limits of one request.
const (
	readChunk    = 1 << 20 // bytes read from the log at once for one reader
	writeTimeout = 10 * time.Second
	bodyTimeout  = 2 * time.Minute // for a client to send what it appends
	readyTimeout = 5 * time.Second
)

// Handler serves the thread API below /api/stream, the Durable Streams protocol below /v1/stream, and /healthz, /readyz and /metrics.
func (s *Server) Handler() http.Handler {
	s.tokens.secrets = s.Secrets
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
	if s.metrics != nil {
		mux.Handle("GET /metrics", s.metrics.handler())
	}
	mux.HandleFunc(BackupPath, s.backup)
	mux.HandleFunc("GET /readyz", s.ready)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, protocolRoot) {
			s.protocol(w, r) // its names are not tidied
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// ready tells whether the log can be written.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := s.Log.engine.Check(ctx); err != nil {
		s.Logger.Warn("not ready", "error", err)
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, "the log can't be written")
		return
	}
	fmt.Fprintln(w, "ok")
}

// problem is an answer that is no success.
type problem struct {
	status  int
	code    string
	message string
	entries []thread.BadEntry
	header  map[string]string
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
		s.answerError(w, r, err)
	}
}

// answerError answers a request that failed.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	h := w.Header()
	var p *problem
	var conflict *ConflictError
	switch {
	case errors.As(err, &p):
	case errors.As(err, &conflict):
		p = &problem{status: http.StatusConflict, code: "conflict", message: conflict.Error(), entries: conflict.Entries}
	case errors.Is(err, store.ErrFull):
		p = refuse(http.StatusInsufficientStorage, "full", "the log's disk is full: nothing can be appended until there is room")
		h.Set("Retry-After", "30")
	case r.Context().Err() != nil:
		return // the client is gone
	default:
		s.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		p = refuse(http.StatusServiceUnavailable, "unavailable", "the log can't do this now")
		h.Set("Retry-After", "1")
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	for name, value := range p.header {
		h.Set(name, value)
	}
	h.Set("Content-Type", "application/json")
	h.Del(headerEncoding)
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

// authorize checks the request's token and that it is for the thread in the path.
func (s *Server) authorize(r *http.Request, scope string) (Grant, error) {
	name := r.PathValue("stream")
	if _, ok := threadOf(name); !ok {
		return Grant{}, refuse(http.StatusNotFound, "not_found", "no such stream: want %s<threadId>, threadId of A-Z a-z 0-9 _ -", thread.StreamName(""))
	}
	return s.permit(r.Header.Get("Authorization"), name, scope)
}

// permit checks what an Authorization header allows on a stream.
func (s *Server) permit(authorization, name, scope string) (Grant, error) {
	kind, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(kind, "Bearer") || token == "" {
		return Grant{}, refuse(http.StatusUnauthorized, "no_token", "a bearer token is required")
	}
	g, err := s.tokens.check(strings.TrimSpace(token))
	switch {
	case err != nil:
		return Grant{}, refuse(http.StatusUnauthorized, "invalid_token", "%s", err)
	case g.Thread == "" && strings.HasPrefix(name, thread.StreamName("")):
		return Grant{}, refuse(http.StatusUnauthorized, "invalid_token", "token has no thread as its subject")
	case g.name() != name:
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
	body, err := readBody(w, r, thread.MaxBody)
	if err != nil {
		return err
	}
	entries, err := parseBody(body, g.Run)
	if err != nil {
		return err
	}
	res, err := s.Log.Append(r.Context(), g.Thread, entries)
	if err != nil {
		return asAnswer(err)
	}
	w.Header().Set(headerNext, offset(res.Next))
	return answer(w, struct {
		NextOffset string `json:"nextOffset"`
		Appended   int    `json:"appended"`
		Duplicates int    `json:"duplicates"`
	}{offset(res.Next), res.Appended, res.Duplicates})
}

// readAll reads a body, which a client has some time to send.
func readAll(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "too_large", "the body has more than %d bytes", most)
	if r.ContentLength > most {
		return nil, tooLarge
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // a reader without deadlines is a test's
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	_ = rc.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "body", "the body can't be read: %v", err)
	}
	return body, nil
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

// read gives a thread's entries as NDJSON, or as events.
func (s *Server) read(w http.ResponseWriter, r *http.Request, g Grant) error {
	q := r.URL.Query()
	live := q.Get("live")
	if live == "sse" {
		w.Header().Set("Cache-Control", "no-store")
		return s.get(w, r, thread.StreamName(g.Thread))
	}
	if live != "" && live != "long-poll" {
		return refuse(http.StatusBadRequest, "live", "live=%.20q is not served: want long-poll or sse", live)
	}
	f := s.Log.follow(thread.StreamName(g.Thread))
	defer f.close()
	v, grown, err := s.thread(r.Context(), f)
	if err != nil {
		return err
	}
	after, err := parseOffset(q["offset"], v.tail())
	if err != nil {
		return err
	}
	if live != "" && after == v.tail() {
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
	w.Header().Set(headerNext, offset(v.tail()))
	w.Header().Set(headerUpToDate, "true")
	w.Header().Set("Cache-Control", "no-store")
	if live != "" && after == v.tail() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	return s.send(r.Context(), w, v, after)
}

// thread is the thread that f follows, as it is now.
func (s *Server) thread(ctx context.Context, f *follower) (view, <-chan struct{}, error) {
	head, grown, err := f.look(ctx)
	if err != nil {
		return view{}, nil, err
	}
	v, err := s.Log.judge(ctx, f.name, head)
	if errors.Is(err, errAbsent) {
		err = refuse(http.StatusNotFound, "not_found", "the thread was never written")
	}
	return v, grown, asAnswer(err)
}

// await returns when the thread has grown, or was waited for long enough.
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

// send writes a thread's entries after an offset, up to its end as v has it.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, v view, after uint64) error {
	rc := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	var buf []byte
	for after < v.tail() {
		records, err := s.Log.records(ctx, v, after, v.tail(), readChunk)
		if err != nil {
			if ctx.Err() != nil {
				return nil // the reader is gone
			}
			// The status is out already. A connection that breaks says that this was not all.
			s.Logger.Error("a read broke off", "stream", v.name, "error", err)
			panic(http.ErrAbortHandler)
		}
		if len(records) == 0 {
			return nil // the rest was removed
		}
		buf = buf[:0]
		for _, rec := range records {
			buf = append(appendEntry(buf, rec), '\n')
		}
		after = records[len(records)-1].Seq
		if !s.write(ctx, w, rc, buf) {
			return nil // the reader is gone, or too slow
		}
	}
	return nil
}

// write writes a piece of an answer to a reader who may be slow, and reports whether he took it.
func (s *Server) write(ctx context.Context, w http.ResponseWriter, rc *http.ResponseController, b []byte) bool {
	_ = rc.SetWriteDeadline(time.Now().Add(cmp.Or(s.Patience, writeTimeout))) // a writer without deadlines is a test's
	n, err := w.Write(b)
	s.metrics.sent(n)
	if err != nil && ctx.Err() == nil {
		s.metrics.dropped()
	}
	return err == nil
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
	token, err := Mint(s.Secrets[0], Grant{Thread: g.Thread, Scope: []string{ScopeWrite}, Run: g.Run, House: g.House, Until: until})
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

// parseOffset is the offset after which to read.
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
		return 0, refuse(http.StatusBadRequest, "offset", "offset %.40q is none of this stream's: want 0, -1, now or a %s", given[0], headerNext)
	}
	return at, nil
}

// parsePlace reads a place in a stream. The last of these is the start as other servers of the protocol write it.
func parsePlace(s string) (uint64, bool) {
	switch s {
	case "0", "-1", "0000000000000000_0000000000000000":
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 63)
	return n, err == nil && len(s) == 20
}
