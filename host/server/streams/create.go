package streams

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// create serves PUT.
func (a *API) create(w http.ResponseWriter, r *http.Request, name string, g token.Grant) error {
	want, err := parseWanted(r.Header)
	if err != nil {
		return err
	}
	differs := want.Source != "" || want.Closed || want.TTL != nil || want.Expires != nil ||
		want.Type != "" && want.Type != request.JSON
	if request.IsThread(name) && differs {
		return request.Refuse(http.StatusBadRequest, "thread",
			"a thread is made as %s, open, for ever and of its own", request.JSON)
	}
	if want.Source != "" && !a.Insecure {
		fork := r.Header.Get(request.HeaderForkToken)
		if _, err := a.Permit(r.Context(), fork, want.Source, token.ScopeRead); err != nil {
			return err
		}
	}
	l := a.Lease(r, g)
	defer l.Free()
	body, err := request.ReadBody(w, r, thread.MaxBody, l)
	if err == nil && want.Sub > 0 {
		err = l.Grow(memory.BodyCharge * log.MaxForkCopy)
	}
	if err == nil {
		err = a.Spend(g, len(body))
	}
	if err != nil {
		return err
	}
	want.Body, want.Writer = body, a.WriterOf(g)
	v, made, err := a.Log.Create(r.Context(), name, want)
	if err != nil {
		return err
	}
	describe(w.Header(), v)
	if made {
		w.Header().Set("Location", absolute(r, name))
	}
	w.WriteHeader(request.MadeStatus(made))
	return nil
}

// parseWanted parses the headers of a PUT.
func parseWanted(h http.Header) (want log.Want, err error) {
	bad := func(name, want string) error {
		return request.Refuse(http.StatusBadRequest, "header", "%s %.80q: want %s", name, h.Get(name), want)
	}
	if given := h.Get("Content-Type"); given != "" {
		if want.Type, err = mediaType(given); err != nil {
			return want, err
		}
	} else if _, there := h["Content-Type"]; there {
		return want, bad("Content-Type", "a media type")
	}
	want.Closed = strings.EqualFold(h.Get(request.HeaderClosed), "true")
	if given := h.Values(request.HeaderTTL); len(given) > 0 {
		ttl, ok := parseDecimal(given[0])
		if !ok || ttl > 1<<32 || len(given) > 1 {
			return want, bad(request.HeaderTTL, "seconds, digits only")
		}
		want.TTL = &ttl
	}
	if given := h.Values(request.HeaderExpires); len(given) > 0 {
		at, ok := parseExpires(given[0])
		if !ok || len(given) > 1 {
			return want, bad(request.HeaderExpires, "RFC 3339, once")
		}
		if want.TTL != nil {
			return want, request.Refuse(http.StatusBadRequest, "header", "want %s or %s, not both", request.HeaderTTL,
				request.HeaderExpires)
		}
		want.Expires = &at
	}
	return want, parseFork(&want, h, bad)
}

// rfc3339 is stricter than time.Parse, which accepts time zones of a day and more. Such a time can't be written again.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseExpires parses a time of RFC 3339.
func parseExpires(s string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, s)
	at = at.UTC()
	return at, err == nil && rfc3339.MatchString(s) && 0 <= at.Year() && at.Year() <= 9999
}

// parseFork parses those about a fork.
func parseFork(want *log.Want, h http.Header, bad func(name, want string) error) (err error) {
	_, from := h[request.HeaderForkedFrom]
	_, at := h[request.HeaderForkOffset]
	_, sub := h[request.HeaderForkSub]
	switch {
	case !from && (at || sub):
		return request.Refuse(http.StatusBadRequest, "header", "%s and %s are nothing without %s",
			request.HeaderForkOffset, request.HeaderForkSub, request.HeaderForkedFrom)
	case !from:
		return nil
	}
	if want.Source, err = streamName(h.Get(request.HeaderForkedFrom)); err != nil {
		return bad(request.HeaderForkedFrom, "the path of a stream")
	}
	if at {
		at, ok := request.ParsePlace(h.Get(request.HeaderForkOffset))
		if !ok || at.Part > 0 {
			return bad(request.HeaderForkOffset, "an offset, and none within an append")
		}
		want.At = &at.Seq
	}
	if sub {
		n, ok := parseDecimal(h.Get(request.HeaderForkSub))
		if !ok {
			return bad(request.HeaderForkSub, "a number")
		}
		want.Sub = uint64(n)
	}
	return nil
}
