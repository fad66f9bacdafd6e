package server

import (
	"errors"
	"fmt"
	"net/http"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// problem is an answer to a request that failed.
type problem struct {
	status  int
	code    string
	message string
	entries []thread.BadEntry
	header  map[string]string
}

func (p *problem) Error() string { return p.message }

// refuse returns a problem without headers.
func refuse(status int, code, format string, args ...any) *problem {
	return &problem{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// problemOf returns the answer to a refused request, with its status, code, message and headers; nil for an error of
// the engine.
func problemOf(err error) *problem {
	var (
		p        *problem
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
		return refuse(http.StatusServiceUnavailable, "busy", "%v", memory.ErrBusy).with("Retry-After", 1)
	case errors.Is(err, memory.ErrShare):
		return refuse(http.StatusTooManyRequests, "share", "%v", memory.ErrShare).with("Retry-After", 1)

	case errors.Is(err, rows.ErrOtherLog):
		const text = "the rows of this server's database are of another log than its own: the server of that log " +
			"serves them, or arbe db adopt moves them to this one"
		return refuse(http.StatusServiceUnavailable, "other_log", text).with("Retry-After", 5)
	case errors.Is(err, member.ErrRows):
		return refuse(http.StatusServiceUnavailable, "houses", "%v", member.ErrRows).with("Retry-After", 5)
	case errors.Is(err, member.ErrNoKeys):
		return refuse(http.StatusServiceUnavailable, "keys", "%v", member.ErrNoKeys).with("Retry-After", 5)
	case errors.Is(err, member.ErrLogin):
		return refuse(http.StatusUnauthorized, "invalid_token", "%v", err)

	case errors.As(err, &entries):
		p = refuse(http.StatusBadRequest, "invalid", "%v", entries)
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
		return refuse(http.StatusBadRequest, "json", "%v", syntax)
	case errors.Is(err, log.ErrEmpty):
		return refuse(http.StatusBadRequest, "empty", "%v", log.ErrEmpty)
	case errors.As(err, &count):
		return refuse(http.StatusRequestEntityTooLarge, "too_many", "%v", count)
	case errors.As(err, &size):
		return refuse(http.StatusRequestEntityTooLarge, "too_large", "%v", size)
	case errors.As(err, &quota):
		return refuse(http.StatusInsufficientStorage, "quota", "%v", quota)

	case errors.As(err, &conflict):
		p = refuse(http.StatusConflict, "conflict", "%v", conflict)
		p.entries = conflict.Entries
		return p
	case errors.As(err, &stale):
		return refuse(http.StatusForbidden, "stale_epoch", "%v", stale).with(headerProducerEpoch, stale.Epoch)
	case errors.Is(err, log.ErrEpoch):
		return refuse(http.StatusBadRequest, "producer", "a new epoch begins with %s 0", headerProducerSeq)
	case errors.As(err, &gap):
		return refuse(http.StatusConflict, "producer_gap", "%v", gap).
			with(headerProducerExpected, gap.Want).with(headerProducerReceived, gap.Got)
	case errors.As(err, &closed):
		return refuse(http.StatusConflict, "closed", "%v", closed).
			with(headerClosed, true).with(headerNext, offset(closed.Tail))
	case errors.As(err, &kind):
		return refuse(http.StatusConflict, "content_type", "%v", kind)
	case errors.Is(err, log.ErrSeq):
		return refuse(http.StatusConflict, "seq", "%s is not above the last one", headerSeq)
	case errors.Is(err, log.ErrThreadClose):
		return refuse(http.StatusBadRequest, "thread", "%v", log.ErrThreadClose)

	case errors.As(err, &exists):
		return refuse(http.StatusConflict, "exists", "%v", exists)
	case errors.Is(err, log.ErrKept):
		return refuse(http.StatusConflict, "gone", "%v", log.ErrKept)
	case errors.As(err, &source) && source.Err == log.ErrGone:
		return refuse(http.StatusConflict, "gone", "%v", source)
	case errors.As(err, &source):
		return refuse(http.StatusNotFound, "not_found", "%v", source)
	case errors.As(err, &fork):
		return refuse(http.StatusBadRequest, "fork", "want an offset up to %s, and at most %d forks of forks",
			offset(fork.Tail), log.MaxForkDepth)
	case errors.Is(err, log.ErrForkLarge):
		return refuse(http.StatusBadRequest, "fork", "%s: at most %d messages and %d bytes: want a later offset",
			headerForkSub, log.MaxMessages, log.MaxForkCopy)
	case errors.Is(err, log.ErrForkShort):
		return refuse(http.StatusBadRequest, "fork", "%s: the stream ends before", headerForkSub)

	case errors.Is(err, log.ErrAbsent):
		return refuse(http.StatusNotFound, "not_found", "%v", log.ErrAbsent)
	case errors.Is(err, log.ErrGone):
		return refuse(http.StatusGone, "gone", "%v", log.ErrGone)
	}
	return nil
}

// with adds a header to the answer.
func (p *problem) with(header string, value any) *problem {
	if p.header == nil {
		p.header = map[string]string{}
	}
	p.header[header] = fmt.Sprint(value)
	return p
}

// answerError answers a request with this error; nil is none.
func (s *Server) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	h := w.Header()
	p := problemOf(err)
	switch {
	case p != nil:
	case errors.Is(err, engine.ErrFull):
		p = refuse(
			http.StatusInsufficientStorage,
			"full",
			"the log's disk is full: nothing can be appended until there is room",
		)
		h.Set("Retry-After", "30")
	case errors.Is(err, engine.ErrStale):
		p = refuse(http.StatusServiceUnavailable, "stale", "%s: come again", engine.ErrStale)
		h.Set("Retry-After", "1")
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
	h.Del(headerEncoding)
	p.write(w)
}

// write sends the answer, without its headers.
func (p *problem) write(w http.ResponseWriter) {
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
