package thread

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Limits of connections to a server.
const (
	idlePerHost = 16 // connections that are kept for the next request
	// pingAfter is the silence of an HTTP/2 connection after which it is pinged, and the time that it has to answer.
	pingAfter = 15 * time.Second
)

// NewHTTP returns an HTTP client for thread servers. A process makes one and gives it to all its Clients, so that
// they share connections.
func NewHTTP() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = idlePerHost
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingAfter}
	return &http.Client{Transport: t}
}

// noRedirect follows no redirect: of a POST that is redirected net/http makes a GET, whose 200 acknowledges nothing.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// errPage is an answer of something between the client and the server, such as the login page of a network.
var errPage = errors.New("the answer is a page of HTML, not the thread server's: " +
	"check ARBE_STREAM_URL, and whether the network wants a login")

// pageless is a transport that turns a success with a page of HTML into an error: it is not the thread server's answer.
type pageless struct{ next http.RoundTripper }

func (t pageless) RoundTrip(r *http.Request) (*http.Response, error) {
	next := t.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err != nil || resp.StatusCode/100 != 2 {
		return resp, err
	}
	page := saysHTML(resp)
	if !page && r.Method == http.MethodPost && resp.Body != http.NoBody {
		// The answer to a post is short, whatever type it claims.
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

// saysHTML reports whether an answer claims to be HTML.
func saysHTML(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && (kind == "text/html" || kind == "application/xhtml+xml")
}

// beginsHTML reports whether an answer's first character other than white space is that of a tag. It reads nothing
// away.
func beginsHTML(body *bufio.Reader) bool {
	for n := 1; n <= 512; n++ {
		b, err := body.Peek(n)
		if err != nil {
			return false // shorter than that, or broken off: its reader gets the error
		}
		if c := b[n-1]; c > ' ' && c < 0x80 { // no white space, and no mark of the byte order
			return c == '<'
		}
	}
	return false
}

// Redirected reports whether err means that the server has another address.
func Redirected(err error) bool {
	var se *StatusError
	return errors.As(err, &se) && se.Status/100 == 3
}

// redirectMessage names the address that a redirect leads to, as a base URL where it is one, without user, password
// and query.
func redirectMessage(resp *http.Response) string {
	const unfollowed = "redirects are not followed"
	to, err := resp.Location()
	if err != nil {
		return unfollowed
	}
	clean := url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
	at := clean.String()
	if base, _, ok := strings.Cut(at, "/"+StreamName("")); ok {
		at = base
	}
	return "redirected to " + at + ", and " + unfollowed + ": set ARBE_STREAM_URL to the thread server's own address"
}
