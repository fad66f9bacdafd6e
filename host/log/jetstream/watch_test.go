package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// heard collects what a watch tells.
type heard struct {
	mu    sync.Mutex
	names map[string]int
}

func (h *heard) hear(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil {
		h.names = map[string]int{}
	}
	h.names[name]++
}

func (h *heard) of(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.names[name]
}

// watch watches until the test's end.
func watch(t testing.TB, e engine.Engine) *heard {
	var h heard
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Watch(ctx, h.hear) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &h
}

// A watch tells of all that others append, be it while the server is away from it.
func TestWatch(t *testing.T) {
	t.Parallel()
	opts := &server.Options{ServerName: "one", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true}
	s := runServer(t, opts)
	defer func() { stopServer(s) }()
	p := startProxy(t, s)
	config := configOf(t, s)
	writer := open(t, config)
	enginetest.Add(t, writer, "before", "x")
	config.URL = p.url()
	reader := open(t, config)
	enginetest.Add(t, writer, "opened", "x") // before the watch begins
	h := watch(t, reader)
	enginetest.Add(t, writer, "/odd name", strings.Repeat("x", 3<<20))
	enginetest.Until(t, func() bool { return h.of("opened") == 1 && h.of("/odd name") == 1 })
	p.shut()
	enginetest.Add(t, writer, "away", "x")
	enginetest.Add(t, writer, "away", "y")
	p.open()
	enginetest.Until(t, func() bool { return h.of("away") == 2 })
	enginetest.Add(t, writer, "again", "x")
	enginetest.Until(t, func() bool { return h.of("again") == 1 })

	port := s.Addr().String()
	stopServer(s)
	if _, err := fmt.Sscanf(port, "127.0.0.1:%d", &opts.Port); err != nil {
		t.Fatal(err)
	}
	s = runServer(t, opts)
	enginetest.Add(t, writer, "after", "x") // waits for the server by itself
	enginetest.Until(t, func() bool { return h.of("after") > 0 })
	if h.of("before") != 0 || h.of("away") != 2 || h.of("opened") != 1 {
		t.Errorf("heard %v", h.names)
	}
}
