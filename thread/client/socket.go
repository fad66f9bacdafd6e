package client

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// sockets is the transport of requests over Unix sockets, whose URL has the path of the socket, a colon, and the path on
// the server: unix:///run/arbe.sock:/healthz.
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
