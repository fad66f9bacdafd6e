package httpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// ErrDebugAddress is the error of a public address for profiles.
var ErrDebugAddress = errors.New(
	"profiles are served on a loopback address only, as 127.0.0.1:6060: they show the memory of this process, and " +
		"slow it",
)

// ServeProfiles serves profiles of this process on addr, a loopback address, until ctx is done, and returns nil then.
// It asks for no token.
func ServeProfiles(ctx context.Context, addr string, logger *slog.Logger) error {
	if !Loopback(addr) {
		return fmt.Errorf("debug address %q: %w", addr, ErrDebugAddress)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("debug address: %w", err)
	}
	mux := http.NewServeMux() // not the default one, which others register at
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:    slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends a profile that is being taken
	}
	logger.Info("serving profiles", "url", "http://"+ln.Addr().String()+"/debug/pprof/")
	return ServeUntil(ctx, srv, ln)
}
