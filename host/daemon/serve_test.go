package daemon_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// patience is how long anything may take that must come. It is no promise of the server's.
const patience = 5 * time.Minute

var secret = []byte("0123456789abcdef0123456789abcdef")

// writer returns a token that may write a thread.
func writer(t *testing.T, id string) string {
	t.Helper()
	signed, err := token.Sign(secret, token.Grant{
		Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// serve runs Serve until the returned stop, which returns its error.
func serve(t *testing.T, cfg daemon.Config) (url string, stop func() error) {
	t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- daemon.Serve(ctx, cfg, func(url string) { ready <- url }) }()
	stop = func() error {
		cancel()
		return <-done
	}
	select {
	case url = <-ready:
		return url, stop
	case err := <-done:
		cancel()
		return "", func() error { return err }
	}
}

func TestServe(t *testing.T) {
	data := daemon.Data(filepath.Join(t.TempDir(), "data"))
	var secretBefore string
	for range 2 { // the second time it is the same server
		url, stop := serve(t, daemon.Config{Addr: "127.0.0.1:0", Data: data, LongPoll: time.Minute})
		if at, err := data.Address(); at != url || err != nil {
			t.Errorf("address %q, %v, want %q", at, err, url)
		}
		keys, err := data.Secrets()
		if err != nil || len(keys) != 1 {
			t.Fatalf("%d secrets, %v", len(keys), err)
		}
		key := keys[0]
		if len(key) < token.MinSecret || secretBefore != "" && secretBefore != string(key) {
			t.Fatalf("secret of %d bytes, %v", len(key), err)
		}
		secretBefore = string(key)
		if st, err := os.Stat(filepath.Join(string(data), "secret")); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the secret's file: %v, %v", st.Mode(), err)
		}
		token, err := token.Sign(
			key,
			token.Grant{
				Stream: thread.StreamName("t1"),
				Scope:  []string{token.ScopeWrite},
				Until:  time.Now().Add(time.Hour),
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		c := &client.Client{Base: thread.BaseURL(url), Thread: "t1", Token: client.StaticToken(token)}
		e := thread.Entry{ID: "a", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"x"}`)}
		if _, err := c.Append(t.Context(), []thread.Entry{e}); err != nil {
			t.Fatal(err)
		}
		// A reader that waits does not keep the server from ending.
		waiting := make(chan error, 1)
		go func() {
			_, err := c.Read(t.Context(), "now", true, func(thread.Entry) error { return nil })
			waiting <- err
		}()
		began := time.Now()
		if err := stop(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if err := <-waiting; err != nil {
			t.Logf("the waiting reader got %v", err) // it came when the server was gone
		}
		if d := time.Since(began); d >= 10*time.Second { // what serve gives requests to end
			t.Errorf("ending took %v", d)
		}
		if _, err := data.Address(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the address is still there: %v", err)
		}
	}
}

func TestServeRefuses(t *testing.T) {
	for addr, want := range map[string]error{
		"0.0.0.0:0": daemon.ErrNoSecret, ":0": daemon.ErrNoSecret,
		"[::]:0": daemon.ErrNoSecret, "10.1.2.3:0": daemon.ErrNoSecret,
	} {
		_, stop := serve(t, daemon.Config{Addr: addr, Data: daemon.Data(t.TempDir())})
		if err := stop(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", addr, err, want)
		}
	}
	_, stop := serve(
		t,
		daemon.Config{Addr: "127.0.0.1:0", Data: daemon.Data(t.TempDir()), Secrets: [][]byte{[]byte("short")}},
	)
	if err := stop(); !errors.Is(err, token.ErrShortSecret) {
		t.Errorf("got %v", err)
	}
	data := daemon.Data(t.TempDir())
	_, first := serve(t, daemon.Config{Addr: "127.0.0.1:0", Data: data})
	_, second := serve(t, daemon.Config{Addr: "127.0.0.1:0", Data: data})
	if err := second(); err == nil {
		t.Error("two servers have one log")
	}
	if _, err := data.Address(); err != nil {
		t.Errorf("the second server took the first one's address away: %v", err)
	}
	if err := first(); err != nil {
		t.Error(err)
	}
}

// TestServeSettlesOnRead settles a thread with a run once its summary is read, on a server without rows, too.
func TestServeSettlesOnRead(t *testing.T) {
	key := []byte(strings.Repeat("k", token.MinSecret))
	settled := make(chan string, 100)
	url, stop := serve(t, daemon.Config{
		Addr: "127.0.0.1:0", Data: daemon.Data(t.TempDir()), LongPoll: time.Minute, Secrets: [][]byte{key},
		Parts: func(daemon.Serving) daemon.Parts {
			return daemon.Parts{Settle: func(_ context.Context, id string) (server.Settled, error) {
				settled <- id
				return server.Settled{}, nil
			}}
		},
		SettleReads: true,
	})
	for _, e := range []struct{ id, payload string }{
		{"idle", `{"type":"chat","text":"hi"}`},
		{"t1", `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"running"}`},
	} {
		signed, err := token.Sign(key, token.Grant{
			Stream: thread.StreamName(e.id), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		c := &client.Client{Base: thread.BaseURL(url), Thread: e.id, Token: client.StaticToken(signed)}
		entry := thread.Entry{ID: "r1.running", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(e.payload)}
		if _, err := c.Append(t.Context(), []thread.Entry{entry}); err != nil {
			t.Fatal(err)
		}
		for err := errors.New("not asked"); err != nil; time.Sleep(2 * time.Millisecond) { // until the index has it
			if _, _, err = c.Summary(t.Context()); t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case id := <-settled:
		if id != "t1" {
			t.Errorf("settled %s", id)
		}
	case <-time.After(patience):
		t.Error("nothing was settled")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
