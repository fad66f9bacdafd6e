package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"arbe.0sk.ar/runner/host/stream/store"
)

// A delete whose answer is late, and which is put again, takes nothing that another server has appended meanwhile.
func TestNATSDeleteTwice(t *testing.T) {
	t.Parallel()
	s := startNATS(t, nil)
	direct := openNATS(t, natsConfig(t, s))
	p := startProxy(t, s)
	config := natsConfig(t, s)
	config.URL = p.url()
	e := openNATS(t, config)
	add(t, direct, "s", "old")
	add(t, direct, "s", "older")
	p.lose(loseAnswer, "STREAM.PURGE")
	deleted := make(chan error, 1)
	go func() { deleted <- e.Delete(t.Context(), "s") }()
	<-p.lost
	until(t, func() bool { return !head(t, direct, "s").Exists() })
	add(t, direct, "s", "new") // acknowledged
	p.open()
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	for _, e := range []store.Engine{direct, e} {
		if got := texts(readAll(t, e, "s", 1<<20)); len(got) != 1 || got[0] != "new" {
			t.Errorf("the stream has %q", got)
		}
	}
}

// A cluster that is full is not ready, and is again once there is room.
func TestNATSFullIsNotReady(t *testing.T) {
	t.Parallel()
	s := startNATS(t, func(o *server.Options) { o.JetStreamMaxStore = 4 << 20 })
	e := openNATS(t, natsConfig(t, s))
	if err := e.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	for range 100 {
		h := head(t, e, "s")
		data := []byte(strings.Repeat("x", 100<<10))
		a := store.Append{After: h.Last, Records: []store.Record{{At: now, Data: data}}}
		if _, err = e.Append(t.Context(), "s", a); err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("the cluster is not full: %v", err)
	}
	for range 2 {
		if err := e.Check(t.Context()); !errors.Is(err, store.ErrFull) {
			t.Errorf("a full cluster: %v", err)
		}
	}
	if err := e.Delete(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if err := e.Check(t.Context()); err != nil {
		t.Errorf("room again: %v", err)
	}
	if err := e.Streams(t.Context(), func(name string, _ store.Head) error { return errors.New(name) }); err != nil {
		t.Errorf("a stream is left: %v", err)
	}
}

// Limits of a stream that are changed while a server runs are noticed.
func TestNATSLimitsAreNoticed(t *testing.T) {
	t.Parallel()
	s := startNATS(t, nil)
	e := openNATS(t, natsConfig(t, s))
	js := admin(t, s)
	c := must(js.Stream(t.Context(), "ARBE-0"))(t).CachedInfo().Config
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

// A leader is believed while it has heard from a majority, itself included, in the last two seconds.
func TestNATSMajority(t *testing.T) {
	for _, tt := range []struct {
		replicas int
		heard    []time.Duration // ago; 0 is never
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
		if got := store.HasMajority(tt.replicas, tt.heard...); got != tt.want {
			t.Errorf("%d replicas, heard of %v ago: %v", tt.replicas, tt.heard, got)
		}
	}
}
