package request

import (
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

// ProblemOf returns the answer to a refused request, with its status, code, message and headers; nil for an error of
// the engine.
func ProblemOf(err error) *Problem {
	var (
		p        *Problem
		conflict *log.ConflictError
		entries  *log.EntriesError
		syntax   *log.SyntaxError
		count    *log.CountError
		size     *log.SizeError
		quota    *log.QuotaError
		stale    *log.StaleEpochError
		gap      *log.GapError
		closed   *log.ClosedError
		kind     *log.TypeError
		exists   *log.ExistsError
		source   *log.SourceError
		fork     *log.ForkError
	)
	switch {
	case errors.As(err, &p):
		return p

	case errors.Is(err, memory.ErrBusy):
		return Refuse(http.StatusServiceUnavailable, "busy", "%v", memory.ErrBusy).With("Retry-After", 1)
	case errors.Is(err, memory.ErrShare):
		return Refuse(http.StatusTooManyRequests, "share", "%v", memory.ErrShare).With("Retry-After", 1)

	case errors.Is(err, rows.ErrOtherLog):
		const text = "the rows of this server's database are of another log than its own: the server of that log " +
			"serves them, or arbe db adopt moves them to this one"
		return Refuse(http.StatusServiceUnavailable, "other_log", text).With("Retry-After", 5)
	case errors.Is(err, member.ErrRows):
		return Refuse(http.StatusServiceUnavailable, "houses", "%v", member.ErrRows).With("Retry-After", 5)
	case errors.Is(err, member.ErrNoKeys):
		return Refuse(http.StatusServiceUnavailable, "keys", "%v", member.ErrNoKeys).With("Retry-After", 5)
	case errors.Is(err, member.ErrLogin):
		return Refuse(http.StatusUnauthorized, "invalid_token", "%v", err)

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
	case errors.As(err, &syntax):
		return Refuse(http.StatusBadRequest, "json", "%v", syntax)
	case errors.Is(err, log.ErrEmpty):
		return Refuse(http.StatusBadRequest, "empty", "%v", log.ErrEmpty)
	case errors.As(err, &count):
		return Refuse(http.StatusRequestEntityTooLarge, "too_many", "%v", count)
	case errors.As(err, &size):
		return Refuse(http.StatusRequestEntityTooLarge, "too_large", "%v", size)
	case errors.As(err, &quota):
		return Refuse(http.StatusInsufficientStorage, "quota", "%v", quota)

	case errors.As(err, &conflict):
		p = Refuse(http.StatusConflict, "conflict", "%v", conflict)
		p.entries = conflict.Entries
		return p
	case errors.As(err, &stale):
		return Refuse(http.StatusForbidden, "stale_epoch", "%v", stale).With(HeaderProducerEpoch, stale.Epoch)
	case errors.Is(err, log.ErrEpoch):
		return Refuse(http.StatusBadRequest, "producer", "a new epoch begins with %s 0", HeaderProducerSeq)
	case errors.As(err, &gap):
		return Refuse(http.StatusConflict, "producer_gap", "%v", gap).
			With(HeaderProducerExpected, gap.Want).With(HeaderProducerReceived, gap.Got)
	case errors.As(err, &closed):
		return Refuse(http.StatusConflict, "closed", "%v", closed).
			With(HeaderClosed, true).With(HeaderNext, Offset(closed.Tail))
	case errors.As(err, &kind):
		return Refuse(http.StatusConflict, "content_type", "%v", kind)
	case errors.Is(err, log.ErrSeq):
		return Refuse(http.StatusConflict, "seq", "%s is not above the last one", HeaderSeq)
	case errors.Is(err, log.ErrThreadClose):
		return Refuse(http.StatusBadRequest, "thread", "%v", log.ErrThreadClose)

	case errors.As(err, &exists):
		return Refuse(http.StatusConflict, "exists", "%v", exists)
	case errors.Is(err, log.ErrKept):
		return Refuse(http.StatusConflict, "gone", "%v", log.ErrKept)
	case errors.As(err, &source) && source.Err == log.ErrGone:
		return Refuse(http.StatusConflict, "gone", "%v", source)
	case errors.As(err, &source):
		return Refuse(http.StatusNotFound, "not_found", "%v", source)
	case errors.As(err, &fork):
		return Refuse(http.StatusBadRequest, "fork", "want an offset up to %s, and at most %d forks of forks",
			Offset(fork.Tail), log.MaxForkDepth)
	case errors.Is(err, log.ErrForkLarge):
		return Refuse(http.StatusBadRequest, "fork", "%s: at most %d messages and %d bytes: want a later offset",
			HeaderForkSub, log.MaxMessages, log.MaxForkCopy)
	case errors.Is(err, log.ErrForkShort):
		return Refuse(http.StatusBadRequest, "fork", "%s: the stream ends before", HeaderForkSub)

	case errors.Is(err, index.ErrAbsent):
		return ErrNoThread
	case errors.Is(err, index.ErrCursor):
		return Refuse(http.StatusBadRequest, "cursor", "cursor: want the one of the page before")
	case errors.Is(err, index.ErrBuilding):
		return Refuse(http.StatusServiceUnavailable, "building", "%v", index.ErrBuilding).With("Retry-After", 1)

	case errors.Is(err, log.ErrAbsent):
		return Refuse(http.StatusNotFound, "not_found", "%v", log.ErrAbsent)
	case errors.Is(err, log.ErrGone):
		return Refuse(http.StatusGone, "gone", "%v", log.ErrGone)
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
