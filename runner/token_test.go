package runner_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/thread"
)

// awaitFile waits until a file is there.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) { // between two looks
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatalf("waited in vain for %s", path)
		}
	}
}

// A cancel over the thread is obeyed whatever the server makes of those who wait for it.
func TestCancelIsHeard(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server func(*fakethread.Server)             // before the run
		hook   func(reads int64) fakethread.Fault   // of the reads
		before func(*testing.T, *fakethread.Server) // in mid-run, before the cancel
	}{
		{name: "a server that holds no answer back", server: func(s *fakethread.Server) { s.NoLive() }},
		{name: "an older server", server: func(s *fakethread.Server) { s.Old() }},
		{name: "a server that gives the thread in pieces", server: func(s *fakethread.Server) { s.Paged(1) }},
		{name: "a server that was restored to an earlier state", before: func(t *testing.T, s *fakethread.Server) {
			s.Await(func(e thread.Entry) bool { return strings.HasPrefix(e.ID, "pi:") })
			s.Restore(1)
		}},
		{name: "a hiccup with 405", hook: func(n int64) fakethread.Fault {
			if n <= 2 {
				return fakethread.Fault{Status: 405}
			}
			return fakethread.Fault{}
		}},
		{name: "a hiccup with a redirect", hook: func(n int64) fakethread.Fault {
			if n == 1 {
				return fakethread.Fault{Status: 302, Header: map[string]string{"Location": "/login"}}
			}
			return fakethread.Fault{}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var reads atomic.Int64
			server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
				if c.Method == "GET" && tt.hook != nil {
					return tt.hook(reads.Add(1))
				}
				return fakethread.Fault{}
			})
			if tt.server != nil {
				tt.server(server)
			}
			there := filepath.Join(t.TempDir(), "there")
			cfg := setup(t, server, "prompt", "touch "+there, "sleep 60s")
			done := make(chan runner.Result, 1)
			go func() {
				res, err := run(t, cfg)
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			awaitFile(t, there)
			if tt.before != nil {
				tt.before(t, server)
			}
			put(server, "please", `{"type":"signal.dispatch.cancel_requested","runId":"r1","reason":"enough"}`)
			v := (<-done).Verdict
			if v.Outcome != outcome.Cancelled || !strings.Contains(v.Message, "enough") {
				t.Errorf("got %+v", v)
			}
		})
	}
}

// A heartbeat whose answer takes long does not hold up the next one.
func TestHeartbeatsAtASlowServer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	beats, third := 0, make(chan struct{})
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if len(c.Entries) != 1 || !strings.Contains(c.Entries[0].ID, ".beat.") {
			return fakethread.Fault{}
		}
		mu.Lock()
		if beats++; beats == 3 {
			close(third)
		}
		mu.Unlock()
		select {
		case <-third:
		case <-time.After(20 * time.Second): // in vain
			t.Error("no heartbeat came while others waited for their answers")
		}
		return fakethread.Fault{}
	})
	on := filepath.Join(t.TempDir(), "on")
	cfg := setup(t, server, "prompt", "wait "+on, "say done")
	cfg.Heartbeat = 50 * time.Millisecond
	done := make(chan error, 1)
	go func() { _, err := run(t, cfg); done <- err }()
	select {
	case <-third:
	case err := <-done:
		t.Fatalf("the run has ended: %v", err)
	}
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, e := range server.Entries() {
		var p thread.Heartbeat
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if p.Type == thread.TypeHeartbeat && p.NextMs != 50 {
			t.Errorf("%s: the next one is due after %d ms", e.ID, p.NextMs)
		}
	}
}

// While the renewal of the token hangs, lines and the terminal go out as long as the token is good; and with a fresh
// one when it is not.
func TestRenewalHangs(t *testing.T) {
	t.Parallel()
	var asked, hung atomic.Int64
	free := make(chan struct{})
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		if c.Renewal && asked.Add(1) == 1 {
			<-free
			hung.Add(1)
			return fakethread.Fault{Drop: true}
		}
		return fakethread.Fault{}
	}).Renew("the-renew-token")
	dir := t.TempDir()
	there, on := filepath.Join(dir, "there"), filepath.Join(dir, "on")
	cfg := setup(t, server, "prompt", "touch "+there, "wait "+on, "say done")
	cfg.Client.Renew = "the-renew-token"
	cfg.Heartbeat = 50 * time.Millisecond
	done := make(chan error, 1)
	go func() { _, err := run(t, cfg); done <- err }()
	awaitFile(t, there)
	old := server.Token
	server.SetToken("another one")
	for began := time.Now(); asked.Load() == 0; time.Sleep(2 * time.Millisecond) { // between two looks
		if time.Since(began) > 30*time.Second {
			t.Fatal("nobody asked for a fresh token")
		}
	}
	server.SetToken(old) // as of a server that was confused: the token is good, and the renewal still hangs
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server.Await(func(e thread.Entry) bool { return e.ID == "r1.end.0" })
	if hung.Load() != 0 {
		t.Error("the renewal did not hang")
	}
	close(free)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := server.Renewals(); got > 1 {
		t.Errorf("%d renewals", got)
	}
}

// A token that is refused in mid-run is exchanged, and all lines and the terminal are there.
func TestTokenExpiresInMidRun(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil).Renew("the-renew-token")
	dir := t.TempDir()
	there, on := filepath.Join(dir, "there"), filepath.Join(dir, "on")
	cfg := setup(t, server, "prompt", "touch "+there, "wait "+on, "say done")
	cfg.Client.Renew = "the-renew-token"
	done := make(chan error, 1)
	go func() { _, err := run(t, cfg); done <- err }()
	awaitFile(t, there)
	server.SetToken("rotated once")
	for began := time.Now(); server.Renewals() == 0; time.Sleep(2 * time.Millisecond) { // between two looks
		if time.Since(began) > 30*time.Second {
			t.Fatal("nobody asked for a fresh token")
		}
	}
	server.SetToken("rotated twice")
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := words(server.Entries()); got != doneRun {
		t.Errorf("got  %s\nwant %s", got, doneRun)
	}
}

// A token that was rotated is not on the thread, also where the agent prints it as soon as it is in its file.
func TestRotatedTokenIsRedacted(t *testing.T) {
	t.Parallel()
	server := fakethread.New(t, nil)
	dir := t.TempDir()
	there, on, token := filepath.Join(dir, "there"), filepath.Join(dir, "on"), filepath.Join(dir, "token")
	write := func(path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(token, "the-first-token\n")
	cfg := setup(t, server, "prompt", "call bash", "result the-first-token", "touch "+there, "wait "+on,
		"call bash", "result the-second-token", "warn the-second-token", "exit 3")
	cfg.Redact = &thread.Redactor{}
	cfg.Redact.AddFile("ARBE_STREAM_TOKEN", token)
	done := make(chan error, 1)
	go func() { _, err := run(t, cfg); done <- err }()
	awaitFile(t, there)
	write(token, "the-second-token\n")
	write(on, "")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	redacted := 0
	for _, e := range server.Entries() {
		if text := string(e.Payload); strings.Contains(text, "-token\"") || strings.Contains(text, "the-second") {
			t.Errorf("%s has a token: %s", e.ID, text)
		}
		redacted += strings.Count(string(e.Payload), "[redacted:ARBE_STREAM_TOKEN]")
	}
	if redacted < 4 { // two results, the last line on stderr, its tail
		t.Errorf("%d redactions", redacted)
	}
}
