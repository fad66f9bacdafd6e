// Package streams serves a log over the Durable Streams protocol, without subscriptions:
// https://github.com/durable-streams/durable-streams, PROTOCOL.md. Threads are among its streams.
package streams

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
)

// Root is the path above all streams.
const Root = "/v1/stream/"

// Headers in answers to browsers (CORS).
var (
	allowedHeaders = strings.Join([]string{
		"Authorization", "Content-Type", "If-None-Match", request.HeaderTTL, request.HeaderExpires,
		request.HeaderSeq, request.HeaderClosed, request.HeaderForkedFrom, request.HeaderForkOffset,
		request.HeaderForkSub, request.HeaderForkToken, request.HeaderProducerID, request.HeaderProducerEpoch,
		request.HeaderProducerSeq,
	}, ", ")
	// Exposed are those that a page of another origin may read.
	Exposed = strings.Join([]string{
		"Location", "ETag", "Retry-After", httpd.HeaderRequest, request.HeaderNext, request.HeaderUpToDate,
		request.HeaderCursor, request.HeaderClosed, request.HeaderTTL, request.HeaderExpires,
		request.HeaderEncoding, request.HeaderProducerEpoch, request.HeaderProducerSeq,
		request.HeaderProducerExpected, request.HeaderProducerReceived,
	}, ", ")
)

// API is the protocol over a log.
type API struct{ *request.Core }

// ServeHTTP implements http.Handler, for the paths below Root.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox") // no script of a stream of HTML or SVG runs
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", Exposed)
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE, OPTIONS")
		h.Set("Access-Control-Allow-Headers", allowedHeaders)
		h.Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h.Set("Cache-Control", "no-store") // the default
	serve := map[string]func(http.ResponseWriter, *http.Request, string, token.Grant) error{
		http.MethodPut: a.create, http.MethodPost: a.post, http.MethodDelete: a.remove,
		http.MethodGet: a.get, http.MethodHead: a.inspect,
	}[r.Method]
	if serve == nil {
		h.Set("Allow", "GET, HEAD, POST, PUT, DELETE, OPTIONS")
		a.AnswerError(w, r, request.Refuse(http.StatusMethodNotAllowed, "method", "%.20q is not served", r.Method))
		return
	}
	name, err := streamName(r.URL.EscapedPath())
	var g token.Grant
	if err == nil {
		g, err = a.admit(r, name)
	}
	if err == nil {
		err = serve(w, r, name, g)
	}
	a.AnswerError(w, r, err)
}

// mostName is the longest name of a stream that a client may give, in bytes.
const mostName = 512

// streamName returns the name in a path below Root.
func streamName(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, Root)
	name, err := url.PathUnescape(rest)
	if !ok || err != nil || len(name) > mostName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return "", request.Refuse(http.StatusBadRequest, "path",
			"want %s and a name of at most %d bytes of UTF-8 without control characters", Root, mostName)
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return "", request.Refuse(http.StatusBadRequest, "path",
				"a stream's name has no empty parts, and none that is . or ..")
		}
	}
	if name == "__ds" || strings.HasPrefix(name, "__ds/") {
		return "", request.Refuse(http.StatusNotFound, "not_found", "subscriptions are not served")
	}
	if !request.IsThread(name) && strings.HasPrefix(name, "arbe-thread-") {
		return "", request.Refuse(http.StatusBadRequest, "path",
			"no thread has this name: want arbe-thread-<threadId>, threadId of A-Z a-z 0-9 _ -")
	}
	return name, nil
}

// scopes are the scopes that the protocol's methods need.
var scopes = map[string]string{
	http.MethodGet: token.ScopeRead, http.MethodHead: token.ScopeRead,
	http.MethodPost: token.ScopeWrite, http.MethodPut: token.ScopeWrite, http.MethodDelete: token.ScopeDelete,
}

// admit returns what the request's token allows, or refuses. An insecure server needs none, and allows what a token
// without a run does.
func (a *API) admit(r *http.Request, name string) (token.Grant, error) {
	if a.Insecure {
		return token.Grant{}, nil
	}
	return a.Permit(r.Context(), r.Header.Get("Authorization"), name, scopes[r.Method])
}

// mediaType returns a content type without parameters, as streams are compared by.
func mediaType(s string) (string, error) {
	kind, _, err := mime.ParseMediaType(s)
	if err != nil {
		return "", request.Refuse(http.StatusBadRequest, "content_type", "Content-Type %.80q: %v", s, err)
	}
	return kind, nil
}

// inspect serves HEAD.
func (a *API) inspect(w http.ResponseWriter, r *http.Request, name string, _ token.Grant) error {
	v, err := a.Log.Stat(r.Context(), name)
	if err != nil {
		return err
	}
	describe(w.Header(), v)
	w.WriteHeader(http.StatusOK)
	return nil
}

// describe sets the headers with a stream's properties.
func describe(h http.Header, v log.Stream) {
	h.Set("Content-Type", v.Type)
	h.Set(request.HeaderNext, request.Offset(v.Tail()))
	if v.Closed {
		h.Set(request.HeaderClosed, "true")
	}
	if v.HasTTL {
		h.Set(request.HeaderTTL, strconv.FormatInt(v.TTL, 10))
	}
	if v.Expires != nil {
		h.Set(request.HeaderExpires, v.Expires.UTC().Format(time.RFC3339Nano))
	}
}

// remove serves DELETE.
func (a *API) remove(w http.ResponseWriter, r *http.Request, name string, _ token.Grant) error {
	if err := a.Log.Delete(r.Context(), name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// absolute returns the URL of a stream with the client's host.
func absolute(r *http.Request, name string) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	u := url.URL{Scheme: scheme, Host: r.Host, Path: Root + name}
	return u.String()
}

// cursor returns the Stream-Cursor, by which caches know which answers they may share: the number of the present
// interval, but more than the client's.
func cursor(now time.Time, have string) string {
	const length = 20 * time.Second
	n := int64(now.Sub(time.Date(2024, 10, 9, 0, 0, 0, 0, time.UTC)) / length)
	if had, err := strconv.ParseInt(have, 10, 64); err == nil && had >= n && had < maxNumber {
		n = had + 1
	}
	return strconv.FormatInt(n, 10)
}

// etag returns the ETag of a read. It changes when the stream has more, or is closed.
func etag(v log.Stream, after, next log.Offset) string {
	end := ""
	if v.Closed && next.Seq >= v.Tail() {
		end = ".closed"
	}
	from := strconv.FormatUint(after.Seq, 10)
	if after.Part > 0 {
		from += "_" + strconv.Itoa(after.Part)
	}
	return fmt.Sprintf(`"%s.%s.%d%s"`, v.Born, from, next.Seq, end)
}
