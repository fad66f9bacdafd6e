package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// wanted is the stream that a PUT asks for.
type wanted struct {
	meta
	source   string  // to fork from; "" for none
	at       *uint64 // the offset to fork at; nil for the source's end
	sub      uint64
	typed    bool // it says its content type
	lifetime bool // it says its lifetime
}

// maxForkDepth bounds how many streams a read goes through.
const maxForkDepth = 64

// create serves PUT.
func (s *Server) create(w http.ResponseWriter, r *http.Request, name string, g Grant) error {
	want, err := parseWanted(r.Header, time.Now())
	if err != nil {
		return err
	}
	if _, is := threadOf(name); is && (want.source != "" || want.Closed || want.lifetime || want.typed && want.Type != jsonType) {
		return refuse(http.StatusBadRequest, "thread", "a thread is made as %s, open, for ever and of its own", jsonType)
	}
	if want.source != "" && !s.Open {
		if _, err := s.permit(r.Header.Get(headerForkToken), want.source, ScopeRead); err != nil {
			return err
		}
	}
	l := s.lease(r, g)
	defer l.free()
	body, err := readBody(w, r, thread.MaxBody, l)
	if err == nil && want.sub > 0 {
		err = l.grow(bodyCharge * maxCopied)
	}
	if err == nil {
		err = s.spend(g, len(body))
	}
	if err != nil {
		return err
	}
	v, made, err := s.Log.create(r.Context(), name, want, body, g.Run)
	if err != nil {
		return asAnswer(err)
	}
	describe(w.Header(), v)
	status := http.StatusOK
	if made {
		status = http.StatusCreated
		w.Header().Set("Location", absolute(r, name))
	}
	w.WriteHeader(status)
	return nil
}

// parseWanted reads what a PUT's headers ask for.
func parseWanted(h http.Header, now time.Time) (want wanted, err error) {
	bad := func(name, want string) error {
		return refuse(http.StatusBadRequest, "header", "%s %.80q: want %s", name, h.Get(name), want)
	}
	want.Type = "application/octet-stream"
	if given := h.Get("Content-Type"); given != "" {
		want.typed = true
		if want.Type, err = mediaType(given); err != nil {
			return want, err
		}
	} else if _, there := h["Content-Type"]; there {
		return want, bad("Content-Type", "a media type")
	}
	want.Closed = strings.EqualFold(h.Get(headerClosed), "true")
	if given := h.Values(headerTTL); len(given) > 0 {
		ttl, ok := parseDecimal(given[0])
		if !ok || ttl > 1<<32 || len(given) > 1 {
			return want, bad(headerTTL, "seconds, digits only")
		}
		want.TTL, want.HasTTL, want.Used, want.lifetime = ttl, true, now, true
	}
	if given := h.Values(headerExpires); len(given) > 0 {
		at, ok := parseExpires(given[0])
		if !ok || len(given) > 1 {
			return want, bad(headerExpires, "RFC 3339, once")
		}
		if want.HasTTL {
			return want, refuse(http.StatusBadRequest, "header", "want %s or %s, not both", headerTTL, headerExpires)
		}
		want.Expires, want.lifetime = &at, true
	}
	return want, want.parseFork(h, bad)
}

// rfc3339 is stricter than time.Parse, which takes an offset of a day and more. Such a time can't be written again.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseExpires reads a time of RFC 3339.
func parseExpires(s string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, s)
	at = at.UTC()
	return at, err == nil && rfc3339.MatchString(s) && 0 <= at.Year() && at.Year() <= 9999
}

func (want *wanted) parseFork(h http.Header, bad func(name, want string) error) (err error) {
	_, from := h[headerForkedFrom]
	_, at := h[headerForkOffset]
	_, sub := h[headerForkSub]
	switch {
	case !from && (at || sub):
		return refuse(http.StatusBadRequest, "header", "%s and %s are nothing without %s", headerForkOffset, headerForkSub, headerForkedFrom)
	case !from:
		return nil
	}
	if want.source, err = streamName(h.Get(headerForkedFrom)); err != nil {
		return bad(headerForkedFrom, "the path of a stream")
	}
	if at {
		n, ok := parsePlace(h.Get(headerForkOffset))
		if !ok {
			return bad(headerForkOffset, "an offset")
		}
		want.at = &n
	}
	if sub {
		n, ok := parseDecimal(h.Get(headerForkSub))
		if !ok {
			return bad(headerForkSub, "a number")
		}
		want.sub = uint64(n)
	}
	return nil
}

// create makes a stream, with what is in it from the start, or finds that it is there as it is wanted. run is that of
// the caller's token, which bounds the entries that a thread is made with; "" for any.
func (l *Log) create(
	ctx context.Context, name string, want wanted, body []byte, run string,
) (v view, made bool, err error) {
	v, err = l.state(ctx, name)
	var undeleted *undeletedError
	switch {
	case errors.As(err, &undeleted):
		return v, false, undeleted.cause
	case err == nil:
		return v, false, want.same(v)
	case errors.Is(err, errGone):
		return v, false, refuse(http.StatusConflict, "gone", "the stream was deleted, and is kept for its forks")
	case !errors.Is(err, errAbsent):
		return v, false, err
	}
	var copied []engine.Record
	if want.source != "" {
		if copied, err = l.branch(ctx, &want); err != nil {
			return v, false, err
		}
	}
	if _, is := threadOf(name); is {
		want.Type = jsonType
	}
	records, err := cut(want.Type, body, true)
	if err != nil {
		return v, false, err
	}
	want.Born = born()
	if want.Fork != nil {
		switch err := l.setFork(ctx, want.source, name, []byte(want.Born)); {
		case errors.Is(err, errAbsent):
			return v, false, refuse(http.StatusNotFound, "not_found", "there is no stream %s to fork from", want.source)
		case err != nil:
			return v, false, err
		}
	}
	head, err := l.update(ctx, name, func(head engine.Head) (*engine.Append, error) {
		made = !head.Exists()
		if !made {
			return nil, nil // another was faster
		}
		a := &engine.Append{State: want.state(), Records: append(copied, records...)}
		if _, is := threadOf(name); is {
			a.Records = nil
			entries, err := parseInitial(body, run)
			if err != nil {
				return nil, err
			}
			return a, l.addEntries(ctx, name, a, entries, &Appended{})
		}
		return a, nil
	})
	if err != nil {
		return v, false, err
	}
	v, err = newView(name, head)
	switch {
	case err != nil:
		return v, false, err
	case !made:
		return v, false, want.same(v)
	case v.Fork != nil:
		// It may have been deleted while this one was not there yet to be kept for.
		if _, err := l.source(ctx, v); err != nil {
			err = errors.Join(err, l.drop(ctx, name, func(v view) bool { return v.Born == want.Born }))
			return v, false, refuse(http.StatusNotFound, "not_found", "%v", err)
		}
	}
	return v, true, nil
}

// same says whether a stream that is there is what a PUT wants.
func (want wanted) same(v view) error {
	differ := func(what string) error {
		return refuse(http.StatusConflict, "exists", "the stream is there with another %s", what)
	}
	_, isThread := threadOf(v.name)
	inherits := want.source != ""
	switch {
	case isThread:
		return nil
	case want.Type != v.Type && (want.typed || !inherits):
		return differ("content type")
	case want.Closed != v.Closed:
		return differ("end")
	case (want.lifetime || !inherits) && (want.HasTTL != v.HasTTL || want.TTL != v.TTL || (want.Expires == nil) != (v.Expires == nil) || want.Expires != nil && !want.Expires.Equal(*v.Expires)):
		return differ("lifetime")
	case inherits != (v.Fork != nil), inherits && (want.source != v.Fork.From || want.sub != v.Fork.Sub || want.at != nil && *want.at != v.Fork.At):
		return differ("origin")
	}
	return nil
}

// branch makes the wanted stream a fork, and returns what it has of its source behind the offset that it branches off at.
func (l *Log) branch(ctx context.Context, want *wanted) ([]engine.Record, error) {
	source, err := l.state(ctx, want.source)
	switch {
	case errors.Is(err, errAbsent):
		return nil, refuse(http.StatusNotFound, "not_found", "there is no stream %s to fork from", want.source)
	case errors.Is(err, errGone):
		return nil, refuse(http.StatusConflict, "gone", "the stream %s was deleted", want.source)
	case err != nil:
		return nil, err
	}
	if want.typed && want.Type != source.Type {
		return nil, refuse(http.StatusConflict, "content_type", "the stream %s is %s", want.source, source.Type)
	}
	want.Type = source.Type
	if !want.lifetime {
		want.TTL, want.HasTTL, want.Expires, want.Used = source.TTL, source.HasTTL, source.Expires, time.Now()
	}
	f := &fork{From: want.source, Born: source.Born, At: source.tail(), Sub: want.sub, Depth: 1}
	if source.Fork != nil {
		f.Depth = source.Fork.Depth + 1
	}
	if want.at != nil {
		f.At = *want.at
	}
	if f.At > source.tail() || f.Depth > maxForkDepth {
		return nil, refuse(http.StatusBadRequest, "fork", "want an offset up to %s, and at most %d forks of forks", offset(source.tail()), maxForkDepth)
	}
	want.Fork = f
	return l.copySub(ctx, source, f)
}

// maxCopied is how many bytes of its source a fork may copy, and maxMessages how many messages. Whoever wants to branch off further behind an offset
// names a later one: a stream of bytes has one for each piece of it.
const maxCopied = 8 << 20

// copySub returns the first messages, or bytes, that follow where f branches off.
func (l *Log) copySub(ctx context.Context, source view, f *fork) ([]engine.Record, error) {
	var copied []engine.Record
	left, after, size := f.Sub, f.At, 0
	tooMany := refuse(http.StatusBadRequest, "fork", "%s: at most %d messages and %d bytes: want a later offset", headerForkSub, maxMessages, maxCopied)
	if source.isJSON() && left > maxMessages || !source.isJSON() && left > maxCopied {
		return nil, tooMany
	}
	for left > 0 {
		records, err := l.records(ctx, source, after, source.tail(), readChunk)
		if err != nil {
			return nil, err
		}
		if len(records) == 0 {
			return nil, refuse(http.StatusBadRequest, "fork", "%s: the stream ends before", headerForkSub)
		}
		for _, r := range records {
			after = r.Seq
			n := uint64(1)
			if !source.isJSON() {
				n = min(left, uint64(len(r.Data)))
				r.Data = r.Data[:n]
			}
			if left == 0 {
				break
			}
			if size += len(r.Data); size > maxCopied {
				return nil, tooMany
			}
			copied = append(copied, engine.Record{At: r.At, Data: r.Data})
			left -= n
		}
	}
	return copied, nil
}

// parseInitial reads the entries that a thread is made with, by a token for run.
func parseInitial(body []byte, run string) ([]thread.Entry, error) {
	if len(bytes.TrimSpace(body)) == 0 || string(bytes.TrimSpace(body)) == "[]" {
		return nil, nil
	}
	entries, err := parseBody(body, run)
	if err != nil {
		return nil, fmt.Errorf("the thread's first entries: %w", err)
	}
	return entries, nil
}
