package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

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
		if time.Since(began) > patience {
			t.Fatal("no fresh token was requested")
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
	cfg.Heartbeat = 50 * time.Millisecond
	done := make(chan error, 1)
	go func() { _, err := run(t, cfg); done <- err }()
	awaitFile(t, there)
	server.SetToken("rotated once")
	for began := time.Now(); server.Renewals() == 0; time.Sleep(2 * time.Millisecond) { // between two looks
		if time.Since(began) > patience {
			t.Fatal("no fresh token was requested")
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
	cfg.Redact = &redact.Redactor{}
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
