// Package proxy forwards requests to a thread server, for clients that can't reach it. It uses the API's path and the
// shape of its errors, and has no tokens, streams or logs.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Proxy forwards requests to a thread server. Method, path below the base, query, body and Authorization go upstream
// unchanged, and answers come back unchanged, each part as it arrives. It holds no secret, verifies nothing, follows no
// redirect and caches nothing.
//
// It serves the API below /api/stream and below / alike, threads, environments and secrets below /api, and answers GET
// /healthz itself.
// deploy/supabase/functions/stream-proxy is the same as an edge function; host/server/contract_test.go tests both. Its
// fields must not change while it serves.
type Proxy struct {
	Upstream *url.URL // as ParseUpstream gives it
	// MaxRequests is how many requests may be upstream at once, each on a connection of its own; 0 is 1000. Above it a
	// request gets 503 with Retry-After.
	MaxRequests int
	// Timeout bounds the wait for the header of an answer; 0 is 2 min. It has to exceed the server's long-poll.
	Timeout time.Duration
	// Closing ends the waiting reads when it is done, so that a proxy can stop.
	Closing context.Context
	Logger  *slog.Logger
}

// Times that a client has for its part of a request.
const (
	acceptTimeout = 10 * time.Second // to accept a piece of an answer
	uploadTimeout = 2 * time.Minute  // to send a body
)

// proxyBody is the largest body that is forwarded. It exceeds the server's limit, so that the server refuses most.
const proxyBody = thread.MaxBody + 1<<20

// ParseUpstream returns the base of the thread API at address, a URL with or without /api/stream at its end.
func ParseUpstream(address string) (*url.URL, error) {
	u, err := url.Parse(thread.BaseURL(address))
	if err != nil {
		return nil, errors.Unwrap(err) // without the address, which may hold a password
	}
	// A user would become an Authorization of our own.
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.ContainsAny(address, "?#") ||
		dotted(u.EscapedPath()) {
		return nil, errors.New("want http://HOST or https://HOST, with a path at most")
	}
	return u, nil
}

// Ends of a request that are not the upstream's doing.
var (
	errClosing = errors.New("the proxy is closing")
	errUpgrade = errors.New("the upstream changed the protocol unasked")
)

// uploadError is an error of reading the client's body.
type uploadError struct{ error }

func (e *uploadError) Unwrap() error { return e.error }

// answering is the context's key of the function to call when an answer has begun.
type answering struct{}

// Handler returns the proxy's handler.
func (p *Proxy) Handler() http.Handler {
	most := cmp.Or(p.MaxRequests, 1000)
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  cmp.Or(p.Timeout, 2*time.Minute),
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        time.Minute, // less than the server's own, which would close it under a request
		MaxConnsPerHost:        most,
		MaxIdleConnsPerHost:    min(most, 128),
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true, // the client's own Accept-Encoding decides
	}
	rp := &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        p.rewrite,
		ModifyResponse: begun,
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
		FlushInterval:  -1,
		BufferPool:     &buffers{},
	}
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &proxyWriter{ResponseWriter: rw, rc: http.NewResponseController(rw)}
		began := time.Now()
		defer func() { // also after a panic, which breaks an answer off
			_ = w.rc.SetWriteDeadline(time.Now().Add(acceptTimeout)) // for the end of the answer
			path := r.URL.EscapedPath()
			p.Logger.Info("request", "method", r.Method, "path", path[:min(len(path), 200)],
				"status", cmp.Or(w.status, 499), "ms", time.Since(began).Milliseconds())
		}()
		if ownAnswer(w, r) {
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "busy", "too many requests are on their way")
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		if r.Method == http.MethodGet {
			stop := context.AfterFunc(p.Closing, func() { cancel(errClosing) })
			defer stop()
			ctx = context.WithValue(ctx, answering{}, stop)
		}
		r = r.WithContext(ctx)
		if r.Body != http.NoBody {
			_ = w.rc.SetReadDeadline(time.Now().Add(uploadTimeout)) // only a test's has no deadlines
			r.Body = &upload{http.MaxBytesReader(rw, r.Body, proxyBody), w.rc}
		}
		rp.ServeHTTP(w, r)
	})
}

// ownAnswer answers the requests that do not go upstream, and reports whether it did.
func ownAnswer(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.URL.Path == "/healthz" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok\n") // the client may be gone
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		refuse(w, http.StatusMethodNotAllowed, "method", "the method is not passed on")
	case !strings.HasPrefix(r.URL.Path, "/") || dotted(r.URL.EscapedPath()):
		refuse(w, http.StatusBadRequest, "path", "the path has . or .. in it")
	case r.ContentLength > proxyBody:
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the body is too large")
	default:
		return false
	}
	return true
}

// besideStreams reports whether a path is of the API, and not below /api/stream.
func besideStreams(path string) bool {
	for _, above := range []string{"/api/threads", "/api/environments", "/api/secrets"} {
		if path == above || strings.HasPrefix(path, above+"/") {
			return true
		}
	}
	return false
}

// rewrite makes the request that goes upstream. ReverseProxy has removed the headers of the client's connection, and
// adds none about the client.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	base, rest := p.Upstream.EscapedPath(), r.In.URL.EscapedPath()
	if below, ok := strings.CutPrefix(rest, "/api/stream"); ok && (below == "" || below[0] == '/') {
		rest = below
	}
	if besideStreams(rest) {
		base = strings.TrimSuffix(base, "/api/stream")
	}
	u := r.Out.URL
	u.Scheme, u.Host, u.Opaque, u.User = p.Upstream.Scheme, p.Upstream.Host, "", nil
	u.RawPath = base + rest
	u.Path, _ = url.PathUnescape(u.RawPath) // both parts have been parsed before
	u.RawQuery = r.In.URL.RawQuery          // ReverseProxy cleans it
	r.Out.Host = ""
	for _, h := range []string{"Connection", "Upgrade", "Te"} { // ReverseProxy restores these
		r.Out.Header.Del(h)
	}
}

// begun is called with an answer's header.
func begun(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return errUpgrade
	}
	if stop, ok := res.Request.Context().Value(answering{}).(func() bool); ok {
		stop()
	}
	return nil
}

// failed answers after an error of the transport.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	var large *http.MaxBytesError
	var body *uploadError
	var op *net.OpError
	var slow net.Error
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the body is too large")
		return
	case errors.As(err, &body):
		refuse(w, http.StatusBadRequest, "body", "the body can't be read")
		return
	case errors.Is(context.Cause(r.Context()), errClosing):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "closing", "the proxy is closing")
		return
	case r.Context().Err() != nil:
		return // the client is gone
	}
	p.Logger.Warn("no answer from the thread server", "error", err)
	if dialing := errors.As(err, &op) && op.Op == "dial"; !dialing && errors.As(err, &slow) && slow.Timeout() {
		refuse(w, http.StatusGatewayTimeout, "upstream_slow", "the thread server does not answer in time")
		return
	}
	refuse(w, http.StatusBadGateway, "upstream_unreachable", "the thread server can't be reached")
}

// refuse writes an error of the proxy, in the shape of the server's.
func refuse(w http.ResponseWriter, status int, code, message string) {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	body.Error.Code, body.Error.Message = code, message
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(thread.Marshal(body), '\n')) // the client may be gone
}

// written replaces the spellings of dots and separators in a path.
var written = strings.NewReplacer("%2e", ".", "%2f", "/", "%5c", "/", "\\", "/")

// dotted reports whether a path has a segment . or .., in any spelling. An upstream that resolves it would leave its
// base.
func dotted(path string) bool {
	return slices.ContainsFunc(strings.Split(written.Replace(strings.ToLower(path)), "/"), func(s string) bool {
		return s == "." || s == ".."
	})
}

// upload is a client's body. It marks errors as the client's, and ends the deadline with the body.
type upload struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (u *upload) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		_ = u.rc.SetReadDeadline(time.Time{}) // or it would end the wait for the answer
	} else if err != nil {
		err = &uploadError{err}
	}
	return n, err
}

// proxyWriter keeps the status, and sets a deadline for each write.
type proxyWriter struct {
	http.ResponseWriter
	rc     *http.ResponseController
	status int // 0 where there was no answer
}

// Unwrap is for http.ResponseController.
func (w *proxyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *proxyWriter) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *proxyWriter) Write(b []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	_ = w.rc.SetWriteDeadline(time.Now().Add(acceptTimeout)) // only a test's has no deadlines
	return w.ResponseWriter.Write(b)
}

// buffers are the buffers that answers are copied through.
type buffers struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }
