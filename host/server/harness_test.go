package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/member"
	house "arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// patience is how long anything may take that must come. It is no promise of the server's.
const patience = 5 * time.Minute

// until waits for a condition that must come.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(2 * time.Millisecond) { // between two looks
		if time.Since(began) > patience {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// testServer is a thread server on its own folder, which can be closed and opened again.
type testServer struct {
	t     testing.TB
	dir   string
	log   *log.Log
	srv   *httptest.Server
	doors *member.Doors // nil without houses
	tasks func(context.Context, house.Task) (house.Task, bool, error)
	with  func(*server.Server)

	closeIndex func()
}

func newServer(t testing.TB) *testServer {
	s := &testServer{t: t, dir: t.TempDir()}
	s.open()
	t.Cleanup(s.close)
	return s
}

func (s *testServer) open() {
	logger := slog.New(slog.NewTextHandler(testLog{s.t}, nil))
	streams, err := daemon.OpenLog(s.dir, logger)
	if err != nil {
		s.t.Fatal(err)
	}
	s.log = streams
	threads, closeIndex := startIndex(s.t, streams, logger)
	s.closeIndex = closeIndex
	h := &server.Server{
		Log:      streams,
		Secrets:  [][]byte{secret},
		LongPoll: 300 * time.Millisecond,
		Closing:  context.Background(),
		Logger:   logger,
		Index:    threads,
		Doors:    s.doors,
		Delegate: s.tasks,
	}
	if s.with != nil {
		s.with(h)
	}
	s.srv = httptest.NewServer(h.Handler())
}

func (s *testServer) close() {
	s.srv.Close()
	if s.closeIndex != nil {
		s.closeIndex()
	}
	if err := s.log.Close(); err != nil {
		s.t.Error(err)
	}
}

// startIndex runs an index of a log that nobody writes yet.
func startIndex(t testing.TB, streams *log.Log, logger *slog.Logger) (x *index.Index, stop func()) {
	t.Helper()
	x, err := index.Open(t.TempDir(), "test", streams, logger)
	if err != nil {
		t.Fatal(err)
	}
	streams.Changed = x.Changed
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	return x, func() {
		cancel()
		if err := errors.Join(<-ended, x.Close()); err != nil {
			t.Error(err)
		}
	}
}

// serve runs Serve until the returned stop, which returns its error.
func serve(t *testing.T, cfg daemon.Config) (url string, stop func() error) {
	t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(testLog{t}, nil))
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

func mint(t testing.TB, g token.Grant) string {
	t.Helper()
	if g.Until.IsZero() {
		g.Until = time.Now().Add(time.Hour)
	}
	token, err := token.Sign(secret, g)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func writer(t testing.TB, id string) string {
	return mint(t, token.Grant{Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}})
}

// answer is a response, read whole.
type answer struct {
	status int
	header http.Header
	body   string
	code   string // of an error
	bad    []thread.BadEntry
}

func (s *testServer) do(method, path, token, body string, header ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.srv.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.srv.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	if resp.StatusCode >= 400 {
		var e struct {
			Error struct {
				Code, Message string
				Entries       []thread.BadEntry
			}
		}
		if err := json.Unmarshal(b, &e); err == nil {
			a.code, a.bad = e.Error.Code, e.Error.Entries
			if e.Error.Message == "" {
				s.t.Errorf("%s %s: %d without a message", method, path, resp.StatusCode)
			}
		}
	}
	a.described(s.t, method, s.srv.URL, path, body)
	return a
}

func chat(id, text string) string {
	return fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":%q}}`, id, text)
}

func ids(t testing.TB, ndjson string) string {
	t.Helper()
	var all []string
	for line := range strings.Lines(ndjson) {
		var e thread.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, e.ID)
	}
	return strings.Join(all, " ")
}
