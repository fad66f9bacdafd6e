package jetstream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// TestDeleteTwice delays the answer to a delete, so that the engine repeats it. The second one deletes nothing that
// another engine has appended meanwhile.
func TestDeleteTwice(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	direct := open(t, configOf(t, s))
	p := startProxy(t, s)
	config := configOf(t, s)
	config.URL = p.url()
	e := open(t, config)
	enginetest.Add(t, direct, "s", "old")
	enginetest.Add(t, direct, "s", "older")
	p.lose(loseAnswer, "STREAM.PURGE")
	deleted := make(chan error, 1)
	go func() { deleted <- e.Delete(t.Context(), "s") }()
	<-p.lost
	enginetest.Until(t, func() bool { return !enginetest.Head(t, direct, "s").Exists() })
	enginetest.Add(t, direct, "s", "new") // acknowledged
	p.open()
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	for _, e := range []engine.Engine{direct, e} {
		if got := enginetest.Texts(enginetest.ReadAll(t, e, "s", 1<<20)); len(got) != 1 || got[0] != "new" {
			t.Errorf("the stream has %q", got)
		}
	}
}

// TestNotReadyWhileFull fills the cluster. Check fails until there is room again.
func TestNotReadyWhileFull(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *server.Options) { o.JetStreamMaxStore = 4 << 20 })
	e := open(t, configOf(t, s))
	if err := e.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 100 {
		h := enginetest.Head(t, e, "s")
		data := []byte(strings.Repeat("x", 100<<10))
		a := enginetest.One(h.Last, "", data)
		if _, err = e.Append(t.Context(), "s", a); err != nil {
			break
		}
	}
	if !errors.Is(err, engine.ErrFull) {
		t.Fatalf("the cluster is not full: %v", err)
	}
	for range 2 {
		if err := e.Check(t.Context()); !errors.Is(err, engine.ErrFull) {
			t.Errorf("a full cluster: %v", err)
		}
	}
	if err := e.Delete(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := e.Check(t.Context()); err != nil {
		t.Errorf("room again: %v", err)
	}
	if err := e.Streams(t.Context(), func(name string, _ engine.Head) error { return errors.New(name) }); err != nil {
		t.Errorf("a stream is left: %v", err)
	}
}

// TestLimitsAreNoticed changes a shard's limits while the engine is open. Check reports them.
func TestLimitsAreNoticed(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	e := open(t, configOf(t, s))
	js := admin(t, s)
	c := enginetest.Must(js.Stream(t.Context(), "ARBE-0"))(t).CachedInfo().Config
	usual := c
	for name, change := range map[string]func(){
		"max_bytes":    func() { c.MaxBytes = 1 << 19 },
		"max_msg_size": func() { c.MaxMsgSize = 1000 },
	} {
		change()
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := e.Check(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		c = usual
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := e.Check(t.Context()); err != nil {
			t.Errorf("%s is as before: %v", name, err)
		}
	}
}

// TestMajority has leaders with heartbeats of their replicas some time ago. One has a majority if that is less than two
// seconds for so many replicas, itself included.
func TestMajority(t *testing.T) {
	for _, tt := range []struct {
		replicas int
		ago      []time.Duration // time since; 0 for never
		want     bool
	}{
		{1, nil, true},
		{3, []time.Duration{time.Millisecond, time.Millisecond}, true},
		{3, []time.Duration{1900 * time.Millisecond, time.Hour}, true},
		{3, []time.Duration{2 * time.Second, time.Hour}, false},
		{3, []time.Duration{0, 0}, false},
		{3, nil, false},
		{3, []time.Duration{time.Second}, true},
		{5, []time.Duration{time.Second, 0, 0, 0}, false},
		{5, []time.Duration{time.Second, time.Second, 3 * time.Second, 0}, true},
	} {
		if got := jetstream.HasMajority(tt.replicas, tt.ago...); got != tt.want {
			t.Errorf("%d replicas, contacts %v ago: %v", tt.replicas, tt.ago, got)
		}
	}
}
