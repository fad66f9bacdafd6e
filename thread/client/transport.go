package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/thread"
)

// Limits of connections to a server.
const (
	idlePerHost = 16 // idle connections that are kept for the next request
	// pingAfter is the silence of an HTTP/2 connection after which it is pinged, and the time for the ping's answer.
	pingAfter = 15 * time.Second
)

// NewHTTP returns an HTTP client for thread servers, also for those on a Unix socket. A process makes one for all its
// Clients, so that they share connections.
func NewHTTP() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = idlePerHost
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	t.RegisterProtocol("unix", newSockets())
	return &http.Client{Transport: t}
}

// NewHTTPOf is NewHTTP for a program, whose name and version are in the header User-Agent of all requests.
func NewHTTPOf(agent string) *http.Client {
	return &http.Client{Transport: named{agent, NewHTTP().Transport}}
}

// named is a transport that names the program.
type named struct {
	agent string
	next  http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", n.agent)
	return n.next.RoundTrip(r)
}

// noRedirect follows no redirect: net/http turns a redirected POST into a GET, whose 200 acknowledges nothing.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// errPage is the error of an answer that does not come from the thread server, such as the login page of a network.
var errPage = errors.New("the answer is a page of HTML, not the thread server's: " +
	"check ARBE_STREAM_URL, and whether the network wants a login")

// pageless is a transport that turns a success with a page of HTML into errPage.
type pageless struct{ next http.RoundTripper }

func (t pageless) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := cmp.Or(t.next, http.DefaultTransport).RoundTrip(r)
	if err != nil || resp.StatusCode/100 != 2 {
		return resp, err
	}
	page := claimsHTML(resp)
	if !page && r.Method == http.MethodPost && resp.Body != http.NoBody {
		// The answer to a post is short. Its content type may be false.
		body := bufio.NewReader(resp.Body)
		page = beginsHTML(body)
		resp.Body = struct {
			io.Reader
			io.Closer
		}{body, resp.Body}
	}
	if page {
		drain(resp.Body)
		return nil, errPage
	}
	return resp, nil
}

// claimsHTML reports whether an answer claims to be HTML.
func claimsHTML(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (kind == "text/html" || kind == "application/xhtml+xml")
}

// beginsHTML reports whether an answer's first character after white space begins a tag. It consumes nothing.
func beginsHTML(body *bufio.Reader) bool {
	b, _ := body.Peek(512) // of an answer that breaks off its reader gets the error
	// Neither white space nor a byte order mark.
	i := bytes.IndexFunc(b, func(c rune) bool { return c > ' ' && c < utf8.RuneSelf })
	return i >= 0 && b[i] == '<'
}

// sockets is the transport of requests over Unix sockets. Their URL has the path of the socket, a colon, and the path
// on the server: unix:///run/arbe.sock:/healthz.
type sockets struct{ over *http.Transport }

func newSockets() sockets {
	return sockets{&http.Transport{
		MaxIdleConnsPerHost: idlePerHost,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			name, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			path, err := hex.DecodeString(name)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, "unix", string(path))
		},
	}}
}

// RoundTrip implements http.RoundTripper. The connections of one socket are those of one host, whose name is the
// socket's path in hex digits.
func (s sockets) RoundTrip(r *http.Request) (*http.Response, error) {
	socket, path, ok := strings.Cut(r.URL.Path, ":/")
	_, escaped, _ := strings.Cut(r.URL.EscapedPath(), ":/")
	if !ok || !strings.HasPrefix(socket, "/") {
		if r.Body != nil {
			_ = r.Body.Close() // it was not read
		}
		return nil, errors.New("want unix:///PATH/OF/SOCKET:/PATH")
	}
	r = r.Clone(r.Context())
	r.Host = "localhost"
	r.URL = &url.URL{
		Scheme: "http", Host: hex.EncodeToString([]byte(socket)), Path: "/" + path, RawPath: "/" + escaped,
		RawQuery: r.URL.RawQuery,
	}
	return s.over.RoundTrip(r)
}

// CloseIdleConnections is for http.Client.
func (s sockets) CloseIdleConnections() { s.over.CloseIdleConnections() }

// ErrAddress is returned for what is no address of a thread server. It may have a password, and is not repeated.
var ErrAddress = errors.New("no base URL: want one like https://host/api/stream, or unix:///PATH of a socket")

// CheckAddress returns ErrAddress for what is no address of a thread server.
func CheckAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.Fragment != "" {
		return ErrAddress
	}
	socket, is := thread.SocketOf(address)
	switch {
	case is && u.Path == strings.TrimPrefix(address, thread.Unix) && !strings.HasSuffix(socket, "/"),
		(u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		return nil
	}
	return ErrAddress
}
