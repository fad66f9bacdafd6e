package request

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// Problem is an answer to a request that failed.
type Problem struct {
	status  int
	code    string
	message string
	entries []thread.BadEntry
	header  map[string]string
}

// Error implements error.
func (p *Problem) Error() string { return p.message }

// Refuse returns a problem without headers.
func Refuse(status int, code, format string, args ...any) *Problem {
	return &Problem{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// refusals are the errors whose answers have neither headers of their own nor entries. The first one that is found
// holds.
var refusals = []struct {
	find    func(error) error // returns the error where err wraps it, else nil
	status  int
	code    string
	again   int    // seconds after which the client may come again; 0 for a refusal for good
	message string // "" for the error's own
}{
	{is(memory.ErrBusy), http.StatusServiceUnavailable, "busy", 1, ""},
	{is(memory.ErrShare), http.StatusTooManyRequests, "share", 1, ""},
	{is(rows.ErrOtherLog), http.StatusServiceUnavailable, "other_log", 5, "the rows of this server's database are of " +
		"another log than its own: the server of that log serves them, or arbe db adopt moves them to this one"},
	{as[*rows.SchemaError], http.StatusServiceUnavailable, "schema", 5, ""},
	{is(member.ErrRows), http.StatusServiceUnavailable, "houses", 5, ""},
	{is(member.ErrNoKeys), http.StatusServiceUnavailable, "keys", 5, ""},

	{as[*log.SyntaxError], http.StatusBadRequest, "json", 0, ""},
	{is(log.ErrEmpty), http.StatusBadRequest, "empty", 0, ""},
	{as[*log.CountError], http.StatusRequestEntityTooLarge, "too_many", 0, ""},
	{as[*log.SizeError], http.StatusRequestEntityTooLarge, "too_large", 0, ""},
	{as[*log.QuotaError], http.StatusInsufficientStorage, "quota", 0, ""},
	{is(log.ErrEpoch), http.StatusBadRequest, "producer", 0, "a new epoch begins with " + HeaderProducerSeq + " 0"},
	{as[*log.TypeError], http.StatusConflict, "content_type", 0, ""},
	{is(log.ErrSeq), http.StatusConflict, "seq", 0, HeaderSeq + " is not above the last one"},
	{is(log.ErrThreadClose), http.StatusBadRequest, "thread", 0, ""},

	{as[*log.ExistsError], http.StatusConflict, "exists", 0, ""},
	{is(log.ErrKept), http.StatusConflict, "gone", 0, ""},
	{as[*log.SourceError], http.StatusNotFound, "not_found", 0, ""},
	{is(log.ErrForkLarge), http.StatusBadRequest, "fork", 0, fmt.Sprintf(
		"%s: at most %d messages and %d bytes: want a later offset", HeaderForkSub, log.MaxMessages, log.MaxForkCopy)},
	{is(log.ErrForkShort), http.StatusBadRequest, "fork", 0, HeaderForkSub + ": the stream ends before"},

	{is(index.ErrCursor), http.StatusBadRequest, "cursor", 0, "cursor: want the one of the page before"},
	{is(index.ErrBuilding), http.StatusServiceUnavailable, "building", 1, ""},

	{is(log.ErrAbsent), http.StatusNotFound, "not_found", 0, ""},
	{is(log.ErrGone), http.StatusGone, "gone", 0, ""},
}

// is returns a function that finds target.
func is(target error) func(error) error {
	return func(err error) error {
		if errors.Is(err, target) {
			return target
		}
		return nil
	}
}

// as finds an error of a type.
func as[T error](err error) error {
	if found, ok := errors.AsType[T](err); ok {
		return found
	}
	return nil
}

// ProblemOf returns the answer to a refused request, with its status, code, message and headers; nil for an error of
// the engine.
func ProblemOf(err error) *Problem {
	var (
		p        *Problem
		conflict *log.ConflictError
		entries  *log.EntriesError
		stale    *log.StaleEpochError
		gap      *log.GapError
		closed   *log.ClosedError
		source   *log.SourceError
		fork     *log.ForkError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, member.ErrLogin):
		return Refuse(http.StatusUnauthorized, "invalid_token", "%v", err)
	case errors.Is(err, index.ErrAbsent):
		return ErrNoThread
	case errors.As(err, &entries):
		p = Refuse(http.StatusBadRequest, "invalid", "%v", entries)
		switch entries.Reason {
		case log.TooLarge:
			p.status, p.code = http.StatusRequestEntityTooLarge, "too_large"
		case log.WrongRun:
			p.status, p.code = http.StatusForbidden, "wrong_run"
		case log.WrongAuthor:
			p.status, p.code = http.StatusForbidden, "wrong_author"
		}
		p.entries = entries.Entries
		return p
	case errors.As(err, &conflict):
		p = Refuse(http.StatusConflict, "conflict", "%v", conflict)
		p.entries = conflict.Entries
		return p
	case errors.As(err, &stale):
		return Refuse(http.StatusForbidden, "stale_epoch", "%v", stale).With(HeaderProducerEpoch, stale.Epoch)
	case errors.As(err, &gap):
		return Refuse(http.StatusConflict, "producer_gap", "%v", gap).
			With(HeaderProducerExpected, gap.Want).With(HeaderProducerReceived, gap.Got)
	case errors.As(err, &closed):
		return Refuse(http.StatusConflict, "closed", "%v", closed).
			With(HeaderClosed, true).With(HeaderNext, Offset(closed.Tail))
	case errors.As(err, &source) && source.Err == log.ErrGone:
		return Refuse(http.StatusConflict, "gone", "%v", source)
	case errors.As(err, &fork):
		return Refuse(http.StatusBadRequest, "fork", "want an offset up to %s, and at most %d forks of forks",
			Offset(fork.Tail), log.MaxForkDepth)
	}
	return refusalOf(err)
}

// refusalOf returns the answer to one of refusals; nil for another error.
func refusalOf(err error) *Problem {
	for _, r := range refusals {
		found := r.find(err)
		if found == nil {
			continue
		}
		p := Refuse(r.status, r.code, "%s", cmp.Or(r.message, found.Error()))
		if r.again > 0 {
			p.With("Retry-After", r.again)
		}
		return p
	}
	return nil
}

// With adds a header to the answer.
func (p *Problem) With(header string, value any) *Problem {
	if p.header == nil {
		p.header = map[string]string{}
	}
	p.header[header] = fmt.Sprint(value)
	return p
}

// Answered returns a handler whose errors are answered. Nothing of it is cached.
func (c *Core) Answered(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		c.AnswerError(w, r, h(w, r))
	}
}

// AnswerError answers a request with an error; it does nothing for nil.
func (c *Core) AnswerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	h := w.Header()
	p := ProblemOf(err)
	switch {
	case p != nil:
	case errors.Is(err, engine.ErrFull):
		p = Refuse(http.StatusInsufficientStorage, "full",
			"the log's disk is full: nothing can be appended until there is room")
		h.Set("Retry-After", "30")
	case errors.Is(err, engine.ErrStale):
		p = Refuse(http.StatusServiceUnavailable, "stale", "%s: come again", engine.ErrStale)
		h.Set("Retry-After", "1")
	case r.Context().Err() != nil:
		return // the client is gone
	default:
		c.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		p = Refuse(http.StatusServiceUnavailable, "unavailable", "the log can't do this now")
		h.Set("Retry-After", "1")
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	for name, value := range p.header {
		h.Set(name, value)
	}
	h.Del(HeaderEncoding)
	p.Write(w)
}

// Write sends the answer, without its headers.
func (p *Problem) Write(w http.ResponseWriter) {
	var body struct {
		Error struct {
			Code    string            `json:"code"`
			Message string            `json:"message"`
			Entries []thread.BadEntry `json:"entries,omitempty"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message, body.Error.Entries = p.code, p.message, p.entries
	WriteJSON(w, p.status, body)
}
