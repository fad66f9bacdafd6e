package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

func admin(t testing.TB) string {
	return mint(t, token.Grant{Stream: token.SubjectAdmin, Scope: []string{token.ScopeBackup}})
}

func TestBackupOverHTTP(t *testing.T) {
	s := newServer(t)
	signed := writer(t, "t1")
	for i := range 50 {
		if got := s.do("POST", "/api/stream/arbe-thread-t1", signed, fmt.Sprintf(`{"id":"e%d","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"x"}}`, i)); got.status != 200 {
			t.Fatal(got.body)
		}
	}
	for name, c := range map[string]struct {
		method, token string
		want          int
	}{
		"no token":      {"GET", "", 401},
		"nonsense":      {"GET", "nonsense", 401},
		"a writer":      {"GET", signed, 403},
		"another scope": {"GET", mint(t, token.Grant{Stream: token.SubjectAdmin, Scope: []string{token.ScopeWrite}}), 403},
		"another one's": {"GET", mint(t, token.Grant{Stream: "other", Scope: []string{token.ScopeBackup}}), 403},
		"a thread's":    {"GET", mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeBackup}}), 403},
		"a stranger":    {"GET", forged(t), 401},
		"HEAD":          {"HEAD", admin(t), 405},
		"POST":          {"POST", admin(t), 405},
		"DELETE":        {"DELETE", admin(t), 405},
		"all is well":   {"GET", admin(t), 200},
	} {
		if got := s.do(c.method, server.BackupPath, c.token, ""); got.status != c.want {
			t.Errorf("%s: %d %.200s", name, got.status, got.body)
		}
	}

	got := s.do("GET", server.BackupPath, admin(t), "")
	if got.header.Get("Content-Type") != "application/x-tar" || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", got.header)
	}
	data := daemon.Data(t.TempDir())
	if _, err := data.Restore(t.Context(), strings.NewReader(got.body)); err != nil {
		t.Fatal(err)
	}
	again := &testServer{t: t, dir: filepath.Join(string(data), "log")}
	again.open()
	defer again.close()
	path := "/api/stream/arbe-thread-t1?offset=0"
	if a, b := s.do("GET", path, signed, "").body, again.do("GET", path, signed, "").body; a != b ||
		strings.Count(a, "\n") != 50 {
		t.Errorf("%d bytes were restored of %d", len(b), len(a))
	}
}

// forged is a token that somebody else has signed.
func forged(t *testing.T) string {
	t.Helper()
	token, err := token.Sign(
		[]byte(strings.Repeat("another ", 8)),
		token.Grant{Stream: token.SubjectAdmin, Scope: []string{token.ScopeBackup}, Until: time.Now().Add(time.Hour)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// plain is an engine that can't be copied.
type plain struct{ log.Engine }

// torn is one whose copies break off.
type torn struct {
	log.Engine
	after int // bytes
	wait  bool
}

func (e torn) Backup(ctx context.Context, w io.Writer) error {
	if _, err := w.Write(make([]byte, e.after)); err != nil {
		return err
	}
	if e.wait {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("a file can't be read")
}

// on is a server on an engine that is made of a good one.
func on(t *testing.T, wrap func(log.Engine) log.Engine, closing context.Context) *testServer {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(testLog{t}, nil))
	p, err := pebble.Open(t.TempDir(), logger)
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{t: t, log: log.New(wrap(p))}
	s.srv = httptest.NewServer(
		(&server.Server{Log: s.log, Secrets: [][]byte{secret}, Closing: closing, Logger: logger}).Handler(),
	)
	t.Cleanup(s.close)
	return s
}

// A backup that breaks off is an error where nothing of it was sent, and else a connection that breaks.
func TestBackupBreaksOff(t *testing.T) {
	s := on(t, func(e log.Engine) log.Engine { return plain{e} }, t.Context())
	if got := s.do("GET", server.BackupPath, admin(t), ""); got.status != 501 ||
		!strings.Contains(got.body, "nats stream backup") {
		t.Errorf("an engine that can't: %d %s", got.status, got.body)
	}
	s = on(t, func(e log.Engine) log.Engine { return torn{e, 100, false} }, t.Context())
	if got := s.do("GET", server.BackupPath, admin(t), ""); got.status != 503 ||
		!strings.HasPrefix(got.body, `{"error"`) {
		t.Errorf("early: %d %.100s", got.status, got.body)
	}
	closing, end := context.WithCancel(t.Context())
	for name, e := range map[string]torn{"late": {after: 3 << 20}, "the server ends": {after: 3 << 20, wait: true}} {
		s := on(t, func(real log.Engine) log.Engine { e.Engine = real; return e }, closing)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.srv.URL+server.BackupPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+admin(t))
		resp, err := s.srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
			t.Fatal(err)
		}
		if e.wait {
			end()
		}
		if n, err := io.Copy(io.Discard, resp.Body); err == nil {
			t.Errorf("%s: %d, and %d bytes more without an error", name, resp.StatusCode, n)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
	end()
}
