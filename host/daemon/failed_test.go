package daemon_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
)

// failing is an engine that fails at an append, which never returns.
type failing struct {
	log.Engine
	once   sync.Once
	failed chan struct{}
}

var errDisk = errors.New("write 000004.log: input/output error")

func (f *failing) Failed() <-chan struct{} { return f.failed }
func (f *failing) Failure() error          { return errors.Join(engine.ErrFailed, errDisk) }

func (f *failing) Append(ctx context.Context, name string, a engine.Append) (engine.Head, error) {
	if len(a.Records) == 0 {
		return f.Engine.Append(ctx, name, a)
	}
	f.once.Do(func() { close(f.failed) })
	select {}
}

// A server whose log fails ends with the reason, whatever is stuck in the log.
func TestServeEndsWhenTheLogFails(t *testing.T) {
	data, quiet := daemon.Data(t.TempDir()), slog.New(slog.DiscardHandler)
	p, err := pebble.Open(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := daemon.Config{Addr: "127.0.0.1:0", Data: data, Secrets: [][]byte{secret}}
	daemon.SetEngine(&cfg, &failing{Engine: p, failed: make(chan struct{})})
	ready, done := make(chan string, 1), make(chan error, 1)
	cfg.Logger = quiet
	go func() { done <- daemon.Serve(t.Context(), cfg, func(url string) { ready <- url }) }()
	url := <-ready
	body := strings.NewReader(`{"id":"a","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat"}}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/stream/arbe-thread-t1", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+writer(t, "t1"))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		t.Errorf("the append was answered: %d", resp.StatusCode)
		_ = resp.Body.Close()
	}
	select {
	case err := <-done:
		if !errors.Is(err, engine.ErrFailed) || !errors.Is(err, errDisk) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the server keeps serving")
	}
	if _, err := data.Address(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the address is still there: %v", err)
	}
}
