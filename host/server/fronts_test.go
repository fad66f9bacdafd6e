package server_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/proxy"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/output"
	"arbe.0sk.ar/runner/thread"
)

// front is a way to a thread server: itself, or what stands before it.
type front struct {
	name  string
	again bool // one that was there before, by another address: it is spared the largest bodies
	start func(t *testing.T, upstream string) (base string, log *output.Buffer)
}

var fronts = []front{
	{
		"direct",
		false,
		func(_ *testing.T, upstream string) (string, *output.Buffer) {
			return upstream + "/api/stream", &output.Buffer{}
		},
	},
	{"proxy", false, func(t *testing.T, upstream string) (string, *output.Buffer) {
		url, log := goProxy(t, upstream, proxy.Proxy{})
		return url + "/api/stream", log
	}},
	{"proxy, short", true, func(t *testing.T, upstream string) (string, *output.Buffer) {
		return goProxy(t, upstream+"/api/stream/", proxy.Proxy{})
	}},
	{"edge", false, func(t *testing.T, upstream string) (string, *output.Buffer) {
		url, log := edge(t, upstream)
		return url + "/stream-proxy/api/stream", log
	}},
	{"edge, short", true, func(t *testing.T, upstream string) (string, *output.Buffer) {
		url, log := edge(t, upstream+"/api/stream/")
		return url + "/functions/v1/stream-proxy", log
	}},
}

// goProxy is a Proxy to upstream.
func goProxy(t *testing.T, upstream string, p proxy.Proxy) (url string, log *output.Buffer) {
	t.Helper()
	u, err := proxy.ParseUpstream(upstream)
	if err != nil {
		t.Fatal(err)
	}
	log = &output.Buffer{}
	p.Upstream, p.Logger = u, slog.New(slog.NewTextHandler(log, nil))
	if p.Closing == nil {
		p.Closing = context.Background()
	}
	srv := httptest.NewServer(p.Handler())
	t.Cleanup(srv.Close)
	return srv.URL, log
}

// edge is the edge function, under the real deno, with what it needs and nothing else.
func edge(t *testing.T, upstream string, flags ...string) (url string, log *output.Buffer) {
	t.Helper()
	if testing.Short() {
		t.Skip("deno is left out")
	}
	cache, err := agents.Cache()
	if err != nil {
		t.Fatal(err)
	}
	deno, err := filepath.Glob(filepath.Join(cache, "deno-2.9.5", "node_modules", "@deno", "*", "deno"))
	if err != nil || len(deno) != 1 {
		t.Fatalf("%d denos in %s, %v: run make agents", len(deno), cache, err)
	}
	args := append(
		[]string{
			"run",
			"--no-prompt",
			"--no-remote",
			"--no-npm",
			"--allow-net=127.0.0.1",
			"--allow-env=ARBE_WORKER_URL",
		},
		flags...)
	cmd := exec.Command(deno[0], append(args, "../../deploy/supabase/functions/stream-proxy/index.ts")...)
	cmd.Env = []string{
		"HOME=" + t.TempDir(),
		"NO_COLOR=1",
		"DENO_NO_UPDATE_CHECK=1",
		"DENO_SERVE_ADDRESS=tcp:127.0.0.1:0",
		"ARBE_WORKER_URL=" + upstream,
	}
	log = &output.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("the edge function logged:\n%s", log)
		}
	})
	listening := regexp.MustCompile(`Listening on (http://127\.0\.0\.1:\d+)`)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(5 * time.Millisecond) { // between two looks
		if m := listening.FindStringSubmatch(log.String()); m != nil {
			return m[1], log
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the edge function ended: %v\n%s", err, log)
		default:
		}
	}
	t.Fatalf("the edge function does not listen: %s", log)
	return "", nil
}

// upstream is a thread server that also answers below /api/stream/odd, as a front must bear with.
type upstream struct {
	*httptest.Server
	odd   atomic.Int64 // requests there
	cases sync.Map     // how many of them, by their ?case
	waits chan struct{}
	seen  chan string   // the part of an upload that has arrived
	more  chan struct{} // lets a slow answer continue
	gone  chan struct{} // a client is known to be gone
}

// seenRequest is how the upstream got a request.
type seenRequest struct {
	Method, URI, Host string
	Header            http.Header
	Body              string
}

func newUpstream(t *testing.T, longPoll time.Duration) *upstream {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(testLog{t}, nil))
	streams, err := daemon.OpenLog(t.TempDir(), logger)
	if err != nil {
		t.Fatal(err)
	}
	summaries, closeIndex := startIndex(t, streams, logger)
	threads := (&server.Server{
		Log: streams, Secrets: [][]byte{secret}, LongPoll: longPoll, Closing: context.Background(), Logger: logger,
		Index: summaries,
		Settle: func(_ context.Context, id string) (server.Settled, error) {
			return server.Settled{Status: "failed", Actions: []server.SettledAction{{ThreadID: id, Did: "orphaned"}}}, nil
		},
	}).Handler()
	u := &upstream{
		waits: make(chan struct{}, 1000),
		seen:  make(chan string),
		more:  make(chan struct{}),
		gone:  make(chan struct{}, 1000),
	}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The path as it was sent: cleaning it is not what is tested here.
		if rest, ok := strings.CutPrefix(r.RequestURI, "/api/stream/odd/"); ok {
			u.odd.Add(1)
			n, _ := u.cases.LoadOrStore(r.URL.Query().Get("case"), new(atomic.Int64))
			n.(*atomic.Int64).Add(1)
			u.oddly(t, w, r, rest)
			return
		}
		if r.URL.Query().Get("live") != "" {
			u.waits <- struct{}{}
		}
		threads.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		u.Close()
		closeIndex()
		if err := streams.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

func (u *upstream) oddly(t *testing.T, w http.ResponseWriter, r *http.Request, what string) {
	rc := http.NewResponseController(w)
	part := func(s string) {
		if _, err := io.WriteString(w, s); err != nil {
			t.Error(err)
		}
		if err := rc.Flush(); err != nil {
			t.Error(err)
		}
	}
	what, _, _ = strings.Cut(what, "/")
	what, _, _ = strings.Cut(what, "?")
	switch what {
	case "echo":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // it was broken, and so is the answer
		}
		w.Header()["X-Twice"] = []string{"a", "b"}
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Hop", "for this connection only")
		w.Header().Set("Connection", "X-Hop, keep-alive")
		_, _ = w.Write(
			thread.Marshal(seenRequest{r.Method, r.RequestURI, r.Host, r.Header, string(body)}),
		) // who asked may be gone
	case "slow":
		w.Header().Set("Content-Type", "application/x-ndjson")
		part("first\n")
		<-u.more
		part("last\n")
	case "sse":
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			part("data: x\n\n")
			select {
			case <-r.Context().Done():
				u.gone <- struct{}{}
				return
			case <-u.more:
			}
		}
	case "hang":
		u.waits <- struct{}{}
		<-r.Context().Done()
		u.gone <- struct{}{}
	case "upload":
		buf := make([]byte, 5)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				u.seen <- err.Error()
				return
			}
			u.seen <- string(buf)
		}
	case "broken":
		w.Header().Set("Content-Type", "application/x-ndjson")
		part("first\n")
		panic(http.ErrAbortHandler)
	case "broken-length":
		w.Header().Set("Content-Length", "12")
		part("first\n")
		panic(http.ErrAbortHandler)
	case "upgrade":
		w.WriteHeader(http.StatusSwitchingProtocols)
	case "redirect":
		w.Header().Set("Location", u.URL+"/api/stream/odd/echo")
		w.WriteHeader(http.StatusTemporaryRedirect)
	case "gzip": // the header is false: unpacking fails
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
		}
		part("as it is")
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// call is a request. Its path is what follows the base, as it is to be sent.
type call struct {
	method, path, token, body string
	header                    []string
}

// client takes answers as they are.
var httpClient = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (c call) request(ctx context.Context, t *testing.T, base string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, c.method, base, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.body != "" {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
	}
	req.URL.Opaque = req.URL.Path + c.path // goes into the request line as it is
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i+1 < len(c.header); i += 2 {
		req.Header.Set(c.header[i], c.header[i+1])
	}
	return req
}

func (c call) do(t *testing.T, base string) answer {
	t.Helper()
	resp, err := httpClient.Do(c.request(t.Context(), t, base))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(b)}
	var e struct {
		Error struct {
			Code, Message string
			Entries       []thread.BadEntry
		}
	}
	if json.Unmarshal(b, &e) == nil {
		a.code, a.bad = e.Error.Code, e.Error.Entries
	}
	a.described(t, c.method, base, c.path, c.body)
	return a
}
