package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// ServeProxy runs p on addr until ctx is done, and then ends it in order: no new requests, the waiting readers answered, the others given 10 s. ready
// is told of the base URL once it can be used. p's Closing is set to ctx.
func ServeProxy(ctx context.Context, addr string, p Proxy, ready func(url string)) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	p.Closing = ctx
	srv := &http.Server{
		Handler: p.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(p.Logger.Handler(), slog.LevelDebug),
	}
	ready("http://" + ln.Addr().String())
	return serveUntil(ctx, srv, ln)
}

// serveUntil serves until ctx is done, and then lets those who are being answered go on for 10 s. Who still listens then comes again, from where it was.
func serveUntil(ctx context.Context, srv *http.Server, ln net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
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
