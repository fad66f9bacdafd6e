package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

// watched is an engine that reports each call, and can fail.
type watched struct {
	log.Engine
	reads, appends atomic.Int64
	keep           atomic.Bool // nothing can be deleted
}

func (w *watched) Read(ctx context.Context, name string, after, upTo uint64, most int) ([]engine.Record, error) {
	w.reads.Add(1)
	return w.Engine.Read(ctx, name, after, upTo, most)
}

func (w *watched) Append(ctx context.Context, name string, a engine.Append) (engine.Head, error) {
	w.appends.Add(1)
	return w.Engine.Append(ctx, name, a)
}

func (w *watched) Delete(ctx context.Context, name string) error {
	if w.keep.Load() {
		return errors.New("not now")
	}
	return w.Engine.Delete(ctx, name)
}

// newWatched is a server, open, on an engine that is watched.
func newWatched(t *testing.T) (*testServer, *watched) {
	t.Helper()
	p, err := pebble.Open(t.TempDir(), slog.New(slog.NewTextHandler(testLog{t}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return watch(t, p)
}

func watch(t *testing.T, e log.Engine) (*testServer, *watched) {
	logger := slog.New(slog.NewTextHandler(testLog{t}, nil))
	w := &watched{Engine: e}
	s := &testServer{t: t, log: log.New(w)}
	h := &server.Server{
		Log:      s.log,
		Secrets:  [][]byte{secret},
		Insecure: true,
		LongPoll: 300 * time.Millisecond,
		Closing:  context.Background(),
		Logger:   logger,
	}
	s.srv = httptest.NewServer(h.Handler())
	t.Cleanup(s.close)
	return s, w
}

// signals are a run's, in the way of a runner: its beats, and its end where it has one.
func signals(run string, from, to int, end string) []thread.Entry {
	var entries []thread.Entry
	add := func(id, payload string) {
		entries = append(
			entries,
			thread.Entry{ID: run + "." + id, TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload)},
		)
	}
	if from == 0 {
		add("running", `{"type":"signal.thread.status_changed","runId":"`+run+`","harness":"pi","status":"running"}`)
	}
	for n := from; n < to; n++ {
		add(
			fmt.Sprintf("beat.%d", n),
			fmt.Sprintf(`{"type":"signal.dispatch.heartbeat","runId":"%s","harness":"pi","beat":%d}`, run, n),
		)
		add(fmt.Sprintf("line.%d", n), `{"type":"chat","text":"no \"signal.dispatch.heartbeat\""}`)
	}
	if end != "" {
		add(end, `{"type":"signal.thread.status_changed","runId":"`+run+`","harness":"pi","status":"completed"}`)
	}
	return entries
}

func TestExpireHeartbeats(t *testing.T) {
	s, engine := newWatched(t)
	path, token := "/api/stream/arbe-thread-t1", writer(t, "t1")
	post := func(entries ...thread.Entry) log.Appended {
		t.Helper()
		res, err := s.log.Append(t.Context(), "t1", entries)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	began := time.Now()
	expire := func(after, keep time.Duration, want int) {
		t.Helper()
		got, err := s.log.Expire(t.Context(), began.Add(after), log.Retention{Heartbeats: keep})
		if err != nil || got.Heartbeats != want {
			t.Errorf("after %v: %+v, %v, want %d heartbeats", after, got, err, want)
		}
	}
	// idle passes neither read nor write.
	idle := func(after, keep time.Duration) {
		t.Helper()
		reads, appends := engine.reads.Load(), engine.appends.Load()
		expire(after, keep, 0)
		if r, a := engine.reads.Load()-reads, engine.appends.Load()-appends; r+a > 0 {
			t.Errorf("after %v: %d reads and %d appends for nothing", after, r, a)
		}
	}
	beats := func(run string) (n int, last string) {
		t.Helper()
		for line := range strings.Lines(s.do("GET", path+"?offset=0", token, "").body) {
			if id := run + ".beat."; strings.Contains(line, `{"id":"`+id) {
				n++
				last = strings.TrimPrefix(line[:strings.Index(line, `","ts"`)], `{"id":"`)
			}
		}
		return n, last
	}
	const day = 24 * time.Hour
	post(signals("r1", 0, 10, "end.0")...)
	post(signals("r2", 0, 10, "")...)
	post(signals("r3", 0, 10, "orphan.0")...)
	next := post(
		thread.Entry{
			ID:      "plain.beat.0",
			TS:      "2026-01-01T00:00:00.000Z",
			Payload: []byte(`{"type":"signal.dispatch.heartbeat"}`),
		},
	).Next
	before := s.do("GET", path+"?offset=0", token, "")

	expire(time.Hour, 0, 0) // no rule
	expire(time.Hour, day, 0)
	idle(2*time.Hour, day)
	if got := s.do("GET", path+"?offset=0", token, ""); got.body != before.body {
		t.Error("something was removed too early")
	}
	expire(25*time.Hour, day, 9)
	idle(26*time.Hour, day)
	if n, last := beats("r1"); n != 1 || last != "r1.beat.9" {
		t.Errorf("run 1 has %d heartbeats, the last is %s", n, last)
	}
	if n, _ := beats("r2"); n != 10 {
		t.Errorf("the open run has %d heartbeats", n)
	}
	if n, _ := beats("r3"); n != 10 {
		t.Errorf("the run that may come back has %d heartbeats", n)
	}
	var fold thread.Fold
	for line := range strings.Lines(s.do("GET", path+"?offset=0", token, "").body) {
		e, err := thread.ParseEntry([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		fold.Add(e)
	}
	if runs := fold.Runs(); len(runs) != 4 || runs[0].Status != thread.StatusCompleted ||
		runs[1].Status != thread.StatusRunning ||
		!runs[2].Provisional {
		t.Errorf("the runs are %+v", runs)
	}

	// What was removed was there: posting it again is nothing new. Offsets are unchanged, and every reader passes
	// what is not there.
	if res := post(signals("r1", 0, 10, "end.0")...); res.Appended != 0 || res.Duplicates != 22 || res.Next != next {
		t.Errorf("posted again: %+v, want the offset %d", res, next)
	}
	for _, at := range []string{"0", fmt.Sprintf("%020d", 4), fmt.Sprintf("%020d", 6)} {
		for _, read := range []string{
			path + "?offset=" + at, path + "?live=long-poll&offset=" + at,
			"/v1/stream/arbe-thread-t1?offset=" + at,
		} {
			got := s.do("GET", read, token, "")
			if got.status != 200 || got.header.Get("Stream-Next-Offset") != fmt.Sprintf("%020d", next) ||
				!strings.Contains(got.body, `"r1.line.8"`) ||
				strings.Contains(got.body, `"r1.beat.8"`) {
				t.Errorf("%s: %d, next %s", read, got.status, got.header.Get("Stream-Next-Offset"))
			}
		}
	}
	if events := firstEvents(t, s, "/v1/stream/arbe-thread-t1?live=sse&offset="+fmt.Sprintf("%020d", 4),
		"upToDate"); strings.Contains(
		events,
		`"r1.beat.8"`,
	) ||
		!strings.Contains(events, `"r1.line.8"`) {
		t.Errorf("events: %.300s", events)
	}

	// The others end, one by the word of its runner, and a heartbeat of the first run comes too late.
	post(signals("r2", 10, 12, "end.0")...)
	post(signals("r3", 10, 10, "end.0")...)
	post(signals("r1", 10, 13, "")...)
	expire(27*time.Hour, day, 11+9+2)
	idle(28*time.Hour, day)
	for run, want := range map[string]int{"r1": 2, "r2": 1, "r3": 1} { // of r1 each was once the last one
		if n, _ := beats(run); n != want {
			t.Errorf("run %s has %d heartbeats, want %d", run, n, want)
		}
	}
	if _, err := s.log.Append(t.Context(), "t1", signals("r4", 0, 3, "end.0")); err != nil {
		t.Fatal(err)
	}
	idle(28*time.Hour, 0)
	expire(time.Minute, time.Second, 2) // another rule
	post(signals("r4", 0, 3, "end.0")...)
	if got := s.do("GET", path+"?offset=now", token, ""); got.status != 200 || got.body != "" {
		t.Errorf("the tail: %d %q", got.status, got.body)
	}
}

// Where the entries of one append have one offset, those of them that go are kept with those that stay. One by one they
// go.
func TestExpireHeartbeatsOnCluster(t *testing.T) {
	natsd, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(natsd) })
	engine, err := jetstream.Open(
		t.Context(),
		jetstream.Config{
			URL:         natsd.ClientURL(),
			Shards:      2,
			Replicas:    1,
			AllowUnsafe: true,
			Logger:      slog.New(slog.NewTextHandler(testLog{t}, nil)),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	s, w := watch(t, engine)
	post := func(entries ...thread.Entry) log.Appended {
		t.Helper()
		res, err := s.log.Append(t.Context(), "t1", entries)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	post(signals("r1", 0, 5, "")...) // as one
	one := signals("r1", 5, 10, "end.0")
	for _, e := range one {
		post(e)
	}
	tail := s.do("GET", "/v1/stream/arbe-thread-t1?offset=now", "", "").header.Get("Stream-Next-Offset")
	rules, later := log.Retention{Heartbeats: time.Minute}, time.Now().Add(time.Hour)
	if got, err := s.log.Expire(t.Context(), later, rules); err != nil || got.Heartbeats != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	reads := w.reads.Load()
	if got, err := s.log.Expire(t.Context(), later, rules); err != nil || got.Heartbeats != 0 ||
		w.reads.Load() != reads {
		t.Errorf("again: %+v, %v, %d reads", got, err, w.reads.Load()-reads)
	}
	for _, path := range []string{
		"/v1/stream/arbe-thread-t1?offset=-1",
		"/v1/stream/arbe-thread-t1?live=long-poll&offset=-1", "/api/stream/arbe-thread-t1?offset=0",
	} {
		got := s.do("GET", path, writer(t, "t1"), "")
		if got.status != 200 || got.header.Get("Stream-Next-Offset") != tail ||
			strings.Count(got.body, `{"id":"`) != 11+11-4 {
			t.Errorf(
				"%s: %d, %d entries, next %s, want %s",
				path,
				got.status,
				strings.Count(got.body, `{"id":"`),
				got.header.Get("Stream-Next-Offset"),
				tail,
			)
		}
	}
	if res := post(one...); res.Appended != 0 || res.Duplicates != 11 {
		t.Errorf("posted again: %+v", res)
	}
}

// firstEvents reads an event stream until it has received an event.
func firstEvents(t *testing.T, s *testServer, path, until string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.srv.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), until) {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
	}
	return got.String()
}

// Many heartbeats are removed in several steps, and a thread that is read in several chunks is seen as a whole.
func TestLargeExpireManyHeartbeats(t *testing.T) {
	s, _ := newWatched(t)
	const n = 2500
	for from := 0; from < n; from += 250 {
		end := ""
		if from+250 == n {
			end = "end.0"
		}
		entries := signals("r1", from, from+250, end)
		for i := range entries {
			if strings.Contains(entries[i].ID, "line") {
				entries[i].Payload = fmt.Appendf(nil, `{"type":"chat","text":"%s"}`, strings.Repeat("x", 2000))
			}
		}
		if _, err := s.log.Append(t.Context(), "t1", entries); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.log.Expire(t.Context(), time.Now().Add(time.Hour), log.Retention{Heartbeats: time.Minute})
	if err != nil || got.Heartbeats != n-1 {
		t.Fatalf("%+v, %v", got, err)
	}
	body := s.do("GET", "/api/stream/arbe-thread-t1?offset=0", writer(t, "t1"), "").body
	if lines := strings.Count(body, "\n"); lines != 1+n+1+1 ||
		!strings.Contains(body, fmt.Sprintf(`"r1.beat.%d"`, n-1)) {
		t.Errorf("%d entries are left", lines)
	}
}

func TestExpireStreams(t *testing.T) {
	s, engine := newWatched(t)
	put := func(name string, header ...string) {
		t.Helper()
		if got := s.do("PUT", "/v1/stream/"+name, "", "",
			append([]string{"Content-Type", "text/plain"}, header...)...); got.status != 201 {
			t.Fatalf("%s: %d %s", name, got.status, got.body)
		}
	}
	expire := func(want log.Pass) {
		t.Helper()
		got, err := s.log.Expire(t.Context(), time.Now(), log.Retention{})
		if err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	put("for-ever")
	put("old", "Stream-Expires-At", "2026-01-01T00:00:00Z")
	put("later", "Stream-TTL", "1000")
	put("source")
	put("fork", "Stream-Forked-From", "/v1/stream/source")
	expire(log.Pass{Streams: 5, Expired: 1})
	expire(log.Pass{Streams: 4})

	// One that is gone stays for its fork. Where the log can't delete it when the fork goes, the next pass does.
	if got := s.do("DELETE", "/v1/stream/source", "", ""); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	expire(log.Pass{Streams: 4})
	engine.keep.Store(true)
	for _, name := range []string{"fork", "later"} {
		if got := s.do("DELETE", "/v1/stream/"+name, "", ""); got.status != 503 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	if got, err := s.log.Expire(t.Context(), time.Now(), log.Retention{}); err == nil || got.Failed != 2 ||
		got.Streams != 4 {
		t.Errorf("%+v, %v", got, err) // the source still has a fork
	}
	engine.keep.Store(false)
	if _, err := s.log.Expire(t.Context(), time.Now(), log.Retention{}); err != nil {
		t.Error(err)
	}
	expire(log.Pass{Streams: 1})
	put("source") // its name is free
}

func TestExpireLoop(t *testing.T) {
	s, _ := newWatched(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.log.ExpireLoop(ctx, time.Millisecond, log.Retention{Heartbeats: time.Nanosecond},
			slog.New(slog.DiscardHandler))
	}()
	if _, err := s.log.Append(t.Context(), "t1", signals("r1", 0, 5, "end.0")); err != nil {
		t.Fatal(err)
	}
	const path = "/api/stream/arbe-thread-t1?offset=0"
	until(t, "the loop deletes heartbeats", func() bool {
		return !strings.Contains(s.do("GET", path, writer(t, "t1"), "").body, `"r1.beat.3"`)
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
