// Package httpd is an HTTP server around any handler: timeouts for what a client sends and accepts, a limit on
// connections, certificates that may change, an access log, recovery from panics, profiles, and an end that gives
// requests time. It has no routes and no measurements of its own: the layers call what their user passes them.
//
// The layers of a server, from the outside: Paced, which NewServer adds, Logged, the user's own, Recovered. Those that
// look at an answer share one Exchange.
package httpd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// NewServer returns an HTTP server with a timeout for each wait.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           Paced(h, WriteTimeout),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// errors of clients' connections
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// Serve serves h on addr, with most connections at the same time, until ctx is done, and ends as ServeUntil does. It
// calls ready with the base URL when requests can come. A handler that panics answers 500.
func Serve(
	ctx context.Context, addr string, most int, h http.Handler, logger *slog.Logger, ready func(url string),
) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	srv := NewServer(Recovered(h, logger, func() {}), logger)
	ready("http://" + ln.Addr().String())
	return ServeUntil(ctx, srv, NewLimit(most, uncounted{}).Of(ln))
}

// ErrAtOnce is the cause of a context's end that gives requests no time.
var ErrAtOnce = errors.New("the server ends at once")

// ServeUntil serves until ctx is done, gives requests 10 s then, and returns nil. Where the cause of ctx's end is
// ErrAtOnce it closes all connections.
func ServeUntil(ctx context.Context, srv *http.Server, ln net.Listener) error {
	served := make(chan error, 1)
	go func() {
		if srv.TLSConfig != nil {
			served <- srv.ServeTLS(ln, "", "")
		} else {
			served <- srv.Serve(ln)
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), ErrAtOnce) {
		return srv.Close()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := srv.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// Loopback reports whether only this machine can reach addr, a host and a port.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// LoopbackName reports whether a host, with or without a port, is a loopback address, localhost or a name below it.
func LoopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // always loopback (RFC 6761)
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
