package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/format"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

func TestUnsafe(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	js := admin(t, s)
	for _, tt := range []struct {
		name   string
		change func(*natsjs.StreamConfig)
		want   string
	}{
		{"replicas", func(*natsjs.StreamConfig) {}, "replicas"},
		{"memory", func(c *natsjs.StreamConfig) { c.Storage = natsjs.MemoryStorage }, "memory"},
		{"async", func(c *natsjs.StreamConfig) {
			c.PersistMode, c.AllowAtomicPublish = natsjs.AsyncPersistMode, false
		}, "allow_atomic"}, // one excludes the other
		{"age", func(c *natsjs.StreamConfig) { c.MaxAge = time.Hour }, "max_age"},
		{"messages", func(c *natsjs.StreamConfig) { c.MaxMsgs, c.Discard = 100, natsjs.DiscardOld }, "max_msgs"},
		{"bytes", func(c *natsjs.StreamConfig) { c.MaxBytes, c.Discard = 1<<20, natsjs.DiscardOld }, "max_bytes"},
		{"subject", func(c *natsjs.StreamConfig) {
			c.MaxMsgsPerSubject, c.Discard = 10, natsjs.DiscardOld
		}, "max_msgs_per_subject"},
		{"retention", func(c *natsjs.StreamConfig) { c.Retention = natsjs.InterestPolicy }, "limits retention"},
		{"ack", func(c *natsjs.StreamConfig) { c.NoAck = true }, "no_ack"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := configOf(t, s)
			config.Prefix = tt.name
			made := natsjs.StreamConfig{
				Name: strings.ToUpper(tt.name) + "-0", Subjects: []string{tt.name + ".0.>"},
				Storage: natsjs.FileStorage, Discard: natsjs.DiscardNew,
				AllowDirect: true, AllowAtomicPublish: true, Metadata: map[string]string{"arbe.shards": "1"},
			}
			tt.change(&made)
			enginetest.Must(js.CreateStream(t.Context(), made))(t)
			config.AllowUnsafe = false
			_, err := jetstream.Open(t.Context(), config)
			var unsafe *jetstream.UnsafeError
			if err == nil || errors.As(err, &unsafe) == (tt.want == "allow_atomic") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if tt.want == "allow_atomic" {
				return
			}
			config.AllowUnsafe = true
			e := open(t, config)
			if tt.name != "ack" {
				enginetest.Add(t, e, "s", "x")
			}
		})
	}
}

// TestShardFull has a shard with a limit that refuses new messages. It loses none, and is safe.
func TestShardFull(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	js := admin(t, s)
	config := configOf(t, s)
	config.Shards = 1
	e := open(t, config)
	h := enginetest.Add(t, e, "s", "x")
	info := enginetest.Must(enginetest.Must(js.Stream(t.Context(), "ARBE-0"))(t).Info(t.Context()))(t)
	info.Config.MaxBytes = 1 << 20
	enginetest.Must(js.UpdateStream(t.Context(), info.Config))(t)
	for _, size := range []int{900 << 10, 3 << 20} {
		_, err := e.Append(t.Context(), fmt.Sprint("of ", size), enginetest.One(0, "", make([]byte, size)))
		if size > 1<<20 && !errors.Is(err, engine.ErrFull) || size < 1<<20 && err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	_, err := e.Append(t.Context(), "s", enginetest.One(h.Last, "", make([]byte, 200<<10)))
	if !errors.Is(err, engine.ErrFull) {
		t.Errorf("got %v", err)
	}
	if now := enginetest.Head(t, e, "s"); now.Last != h.Last {
		t.Errorf("head %+v, was %+v", now, h)
	}
	enginetest.Add(t, e, "s", "a small one")
}

func TestShards(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	js := admin(t, s)
	config := configOf(t, s)
	config.Shards = 3
	first := open(t, config)
	config.Shards = 7
	for i := range 20 {
		enginetest.Add(t, first, fmt.Sprint("s", i), "x")
	}
	second := open(t, config)
	for i := range 20 {
		if got := enginetest.ReadAll(t, second, fmt.Sprint("s", i), 100); len(got) != 1 {
			t.Errorf("stream %d: %d records", i, len(got))
		}
	}
	refused := func(config jetstream.Config, want string) {
		t.Helper()
		if e, err := jetstream.Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
			if e != nil {
				t.Error(e.Close())
			}
		}
	}
	for _, lost := range []string{"ARBE-1", "ARBE-0"} {
		if err := js.DeleteStream(t.Context(), lost); err != nil {
			t.Fatal(err)
		}
		refused(config, lost)
	}
	config.Prefix = "other"
	enginetest.Must(
		js.CreateStream(t.Context(), natsjs.StreamConfig{Name: "FOREIGN", Subjects: []string{"other.1.x"}}))(t)
	refused(config, "FOREIGN")
	config.Prefix = "b.c"
	refused(config, "prefix")

	// An Open was interrupted while it created the shards, of which the first comes last.
	config.Prefix, config.Shards = "third", 4
	e := enginetest.Must(jetstream.Open(t.Context(), config))(t)
	for _, name := range []string{"THIRD-0", "THIRD-1"} {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	config.Shards = 9
	e = open(t, config)
	enginetest.Add(t, e, "s", "x")
	if err := e.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := js.Stream(t.Context(), "THIRD-1"); err != nil {
		t.Error(err)
	}
	if _, err := js.Stream(t.Context(), "THIRD-4"); err == nil {
		t.Error("there are more shards than at first")
	}
	if err := js.DeleteStream(t.Context(), "THIRD-2"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Check(ctx); err == nil {
		t.Error("Check returns nil without a shard")
	}
}

func TestAddress(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"nats://user:secret@127.0.0.1:1", "at 127.0.0.1:1: "},
		{"nats://127.0.0.1:1, nats://secret@127.0.0.1:2", "at 127.0.0.1:1,127.0.0.1:2: "},
		{"nats://user:secret%zz@127.0.0.1:1", "server 1"},
		{"nats://127.0.0.1:1,secret", "server 2"},
		{"", "server 1"},
		{"http://secret@127.0.0.1", "server 1"},
	} {
		_, err := jetstream.Open(t.Context(), jetstream.Config{URL: tt.url})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", tt.url, err)
		}
	}
}

// TestShardFormat has shards that a later program has written, one while the engine is open. Shards without a format
// are older ones.
func TestShardFormat(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	js := admin(t, s)
	config := configOf(t, s)
	config.Shards = 2
	e := open(t, config)
	enginetest.Add(t, e, "s", "x")
	change := func(change func(map[string]string)) {
		t.Helper()
		stream := enginetest.Must(js.Stream(t.Context(), "ARBE-1"))(t)
		info := enginetest.Must(stream.Info(t.Context()))(t)
		change(info.Config.Metadata)
		enginetest.Must(js.UpdateStream(t.Context(), info.Config))(t)
	}
	change(func(m map[string]string) {
		if m["arbe.format"] != "1" {
			t.Errorf("the shard's format is %q", m["arbe.format"])
		}
		delete(m, "arbe.format")
	})
	enginetest.Add(t, open(t, config), "s", "y")
	if err := e.Check(t.Context()); err != nil {
		t.Error(err)
	}
	change(func(m map[string]string) { m["arbe.format"] = "2" })
	_, err := jetstream.Open(t.Context(), config)
	const want = "stream ARBE-1 was written by a later arbe (format 2; this one knows 1): upgrade"
	for _, err := range []error{err, e.Check(t.Context())} {
		if !errors.Is(err, format.ErrLater) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("a later shard: %v", err)
		}
	}
}
