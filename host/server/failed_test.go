package server_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server"
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
	data := server.Data(t.TempDir())
	p, err := pebble.Open(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := server.Config{Addr: "127.0.0.1:0", Data: data, Secrets: [][]byte{secret}}
	server.SetEngine(&cfg, &failing{Engine: p, failed: make(chan struct{})})
	ready, done := make(chan string, 1), make(chan error, 1)
	cfg.Logger = quiet
	go func() { done <- server.Serve(t.Context(), cfg, func(url string) { ready <- url }) }()
	url := <-ready
	body := strings.NewReader(posted("a", `{"type":"chat"}`))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path1, body)
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

// stale is an engine whose leader may have been replaced.
type stale struct{ log.Engine }

func (stale) Head(context.Context, string) (engine.Head, error) {
	return engine.Head{}, engine.ErrStale
}

// While the log can't know whether it has all entries, each read gets 503, with no offset that looks like the tail.
func TestStaleReads(t *testing.T) {
	s := on(t, func(e log.Engine) log.Engine { return stale{e} }, t.Context())
	token := writer(t, "t1")
	for _, path := range []string{path1, "/v1/stream/arbe-thread-t1"} {
		for _, query := range []string{
			"?offset=-1", "?offset=00000000000000000099", "?offset=now&live=long-poll",
			"?offset=now&live=sse",
		} {
			a := s.do("GET", path+query, token, "")
			if a.status != 503 || a.code != "stale" || a.header.Get("Retry-After") != "1" ||
				a.header.Get("Stream-Up-To-Date") != "" {
				t.Errorf("%s%s: %+v", path, query, a)
			}
		}
	}
}
