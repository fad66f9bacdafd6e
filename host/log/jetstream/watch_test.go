package jetstream_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
	"arbe.0sk.ar/runner/internal/test/natsserver"
)

// seen collects the streams that a watch reports.
type seen struct {
	mu    sync.Mutex
	names map[string]int
}

func (s *seen) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]int{}
	}
	s.names[name]++
}

func (s *seen) of(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

// watch watches an engine until the test's end.
func watch(t testing.TB, e *jetstream.Engine) *seen {
	var h seen
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Watch(ctx, h.add) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &h
}

// TestWatch appends while the watching engine is connected, and while it is not. The watch reports every append.
func TestWatch(t *testing.T) {
	t.Parallel()
	opts := natsserver.Options(t.TempDir())
	s := enginetest.Must(natsserver.Run(opts))(t)
	defer func() { natsserver.Stop(s) }()
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
	natsserver.Stop(s)
	if _, err := fmt.Sscanf(port, "127.0.0.1:%d", &opts.Port); err != nil {
		t.Fatal(err)
	}
	s = enginetest.Must(natsserver.Run(opts))(t)
	enginetest.Add(t, writer, "after", "x") // waits for the server
	enginetest.Until(t, func() bool { return h.of("after") > 0 })
	if h.of("before") != 0 || h.of("away") != 2 || h.of("opened") != 1 {
		t.Errorf("seen %v", h.names)
	}
}
