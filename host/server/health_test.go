package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

type healthAnswer struct{ Status, Version, Installation, WritableSince string }

func healthOf(t *testing.T, url string) healthAnswer {
	t.Helper()
	a := (call{method: "GET", path: "/healthz"}).do(t, url)
	var h healthAnswer
	if err := json.Unmarshal([]byte(a.body), &h); err != nil || a.status != 200 ||
		a.header.Get("Content-Type") != "application/json" ||
		h.Status != "ok" {
		t.Fatalf("healthz: %+v, %v", a, err)
	}
	if h.Version != "dev" || a.header.Get("Server") != "arbe/dev" {
		t.Errorf("healthz: version %q, server %q", h.Version, a.header.Get("Server"))
	}
	if a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("healthz may be kept by a cache: %v", a.header)
	}
	return h
}

// places are where a log can be, each with a way to open it. On the cluster it can be opened by several at the same
// time.
func places(t *testing.T) map[string]func() log.Engine {
	dir := t.TempDir()
	s, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(s) })
	must := func(e log.Engine, err error) log.Engine {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	return map[string]func() log.Engine{
		"pebble": func() log.Engine { return must(pebble.Open(dir, quiet)) },
		"nats": func() log.Engine {
			return must(
				jetstream.Open(
					t.Context(),
					jetstream.Config{URL: s.ClientURL(), Shards: 4, Replicas: 1, AllowUnsafe: true, Logger: quiet},
				),
			)
		},
	}
}

// The installation's id is made once: it stays when the server starts again, and no list of streams has it.
func TestInstallation(t *testing.T) {
	for name, open := range places(t) {
		t.Run(name, func(t *testing.T) {
			first := ""
			for range 2 {
				streams := log.New(open())
				id, err := streams.Installation(t.Context())
				if err != nil || !regexp.MustCompile(`^[a-z2-7]{26}$`).MatchString(id) || first != "" && id != first {
					t.Errorf("installation %q, %v; before %q", id, err, first)
				}
				first = id
				if err := streams.Threads(t.Context(),
					func(id string, _ uint64) error { return errors.New(id) }); err != nil {
					t.Errorf("a thread: %v", err)
				}
				if pass, err := streams.Expire(t.Context(), time.Now(), log.Retention{}); err != nil ||
					pass.Streams != 0 {
					t.Errorf("streams: %+v, %v", pass, err)
				}
				if err := streams.Close(); err != nil {
					t.Error(err)
				}
			}
			began := time.Now().Truncate(time.Millisecond)
			url := serveOn(t, open(), func(*server.Server) {})
			h := healthOf(t, url)
			if h.Installation != first {
				t.Errorf("healthz has %q, the log %q", h.Installation, first)
			}
			since, err := time.Parse("2006-01-02T15:04:05.000Z", h.WritableSince)
			if err != nil || since.Before(began) || since.After(time.Now()) {
				t.Errorf("writable since %q, %v; the start was at %s", h.WritableSince, err, began)
			}
			if a := (call{method: "GET", path: "/v1/stream/%01installation"}).do(t, url); a.status != 400 {
				t.Errorf("the stream of the id: %+v", a)
			}
		})
	}
}

// Servers that make a cluster's id at the same time agree on one.
func TestInstallationOfCluster(t *testing.T) {
	open := places(t)["nats"]
	const servers = 4
	ids := make(chan string, servers)
	for range servers {
		streams := log.New(open())
		t.Cleanup(func() {
			if err := streams.Close(); err != nil {
				t.Error(err)
			}
		})
		go func() {
			id, err := streams.Installation(t.Context())
			if err != nil {
				id = err.Error()
			}
			ids <- id
		}()
	}
	first := <-ids
	for range servers - 1 {
		if id := <-ids; id != first || len(id) != 26 {
			t.Errorf("ids %q and %q", first, id)
		}
	}
}

// unsteady is an engine that appends, or fails, after some time.
type unsteady struct {
	log.Engine
	head  engine.Head
	takes time.Duration
	err   error // of an append
	check error
}

func (u *unsteady) Head(context.Context, string) (engine.Head, error) { return u.head, nil }

func (u *unsteady) Check(context.Context) error { return u.check }

func (u *unsteady) Lookup(context.Context, string, string) (engine.Record, bool, error) {
	return engine.Record{}, false, nil
}

func (u *unsteady) Append(ctx context.Context, _ string, a engine.Append) (engine.Head, error) {
	select {
	case <-time.After(u.takes):
	case <-ctx.Done():
		return u.head, ctx.Err()
	}
	if u.err != nil {
		return u.head, u.err
	}
	u.head.Last += uint64(len(a.Records))
	u.head.Data = u.head.Last
	return u.head, nil
}

func TestWritableSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unsteady{}
		streams := log.New(u)
		start, n := time.Now(), 0
		post := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			n++
			e := thread.Entry{
				ID:      fmt.Sprintf("e%d", n),
				TS:      "2026-01-01T00:00:00.000Z",
				Payload: []byte(`{"type":"chat","text":"x"}`),
			}
			_, err := streams.Append(ctx, "t1", []thread.Entry{e})
			return err
		}
		since := func(when string, want time.Time) {
			t.Helper()
			if got := streams.WritableSince(t.Context()); !got.Equal(want) {
				t.Errorf("%s: %s, want %s", when, got, want)
			}
		}
		since("at the start", start)
		time.Sleep(time.Hour)
		if err := post(time.Minute); err != nil {
			t.Fatal(err)
		}
		since("after an append", start)

		u.takes = 10 * time.Second
		if post(time.Second) == nil {
			t.Error("the client did not give up")
		}
		since("after an impatient client", start)

		u.takes, u.err, u.check = 0, engine.ErrFull, engine.ErrFull
		if post(time.Minute) == nil {
			t.Error("no error")
		}
		since("full", time.Now())
		time.Sleep(time.Hour)
		since("full for an hour", time.Now())
		u.err = nil
		if err := post(time.Minute); err != nil {
			t.Fatal(err)
		}
		again := time.Now()
		time.Sleep(time.Hour)
		since("an hour after the next append", again)

		u.err, u.check = errors.New("no majority"), errors.New("no majority")
		if post(time.Minute) == nil {
			t.Error("no error")
		}
		time.Sleep(time.Hour)
		since("no majority", time.Now())
		u.check = nil
		again = time.Now()
		since("a majority again, and no append yet", again)
		time.Sleep(time.Hour)
		since("an hour later", again)

		u.err, u.takes, u.check = nil, 10*time.Second, errors.New("no answer")
		if post(5*time.Second) == nil {
			t.Error("the client did not give up")
		}
		time.Sleep(time.Minute)
		since("a patient client gave up", time.Now())
	})
}
