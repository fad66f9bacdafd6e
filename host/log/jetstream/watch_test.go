package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"arbe.0sk.ar/runner/host/stream/store"
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
func watch(t testing.TB, e store.Engine) *heard {
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
func TestNATSWatch(t *testing.T) {
	t.Parallel()
	opts := &server.Options{ServerName: "one", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true}
	s := runNATS(t, opts)
	defer func() { stopNATS(s) }()
	p := startProxy(t, s)
	config := natsConfig(t, s)
	writer := openNATS(t, config)
	add(t, writer, "before", "x")
	config.URL = p.url()
	reader := openNATS(t, config)
	add(t, writer, "opened", "x") // before the watch begins
	h := watch(t, reader)
	add(t, writer, "/odd name", strings.Repeat("x", 3<<20))
	until(t, func() bool { return h.of("opened") == 1 && h.of("/odd name") == 1 })
	p.shut()
	add(t, writer, "away", "x")
	add(t, writer, "away", "y")
	p.open()
	until(t, func() bool { return h.of("away") == 2 })
	add(t, writer, "again", "x")
	until(t, func() bool { return h.of("again") == 1 })

	port := s.Addr().String()
	stopNATS(s)
	if _, err := fmt.Sscanf(port, "127.0.0.1:%d", &opts.Port); err != nil {
		t.Fatal(err)
	}
	s = runNATS(t, opts)
	add(t, writer, "after", "x") // waits for the server by itself
	until(t, func() bool { return h.of("after") > 0 })
	if h.of("before") != 0 || h.of("away") != 2 || h.of("opened") != 1 {
		t.Errorf("heard %v", h.names)
	}
}
