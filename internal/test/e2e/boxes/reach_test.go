package boxes_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/thread"
)

// between is a server between boxes and the thread server. It records the tokens that boxes send.
type between struct {
	url    string
	mu     sync.Mutex
	tokens []string
}

func newBetween(t *testing.T, answer http.HandlerFunc) *between {
	t.Helper()
	b := &between{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		if _, token, is := strings.Cut(r.Header.Get("Authorization"), "Bearer "); is {
			b.tokens = append(b.tokens, token)
		}
		b.mu.Unlock()
		if r.URL.Path == "/healthz" { // as a proxy does
			_, _ = io.WriteString(w, "ok\n") // the client may be gone
			return
		}
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	b.url = srv.URL
	return b
}

// refusing answers as a thread server does that refuses.
func refusing(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"code":"`+code+`","message":"its reason"}}`) // the client may be gone
	}
}

// page answers with a page of HTML.
func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	_, _ = io.WriteString(w, "<html>Log in</html>") // the client may be gone
}

// A launch into a box that can't use the thread server fails, and names the reason: on the terminal, and on the thread
// as the run's end. Nothing is started, no box is left, and no token is shown.
func TestFullLaunchWithoutWay(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	elsewhere := http.RedirectHandler("https://login.test/", http.StatusFound)
	blocked := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "blocked", http.StatusForbidden) }
	local, both := []string{"local"}, []string{"local", "daytona"}
	const foreign = "no thread server answers like this"
	for _, tt := range []struct {
		name   string
		in     []string         // these providers
		answer http.HandlerFunc // nil for no listener
		want   string
	}{
		{"a refused token", both, refusing(401, "unauthorized"), "401 the token is missing, wrong or expired: its"},
		{"another's token", local, refusing(403, "forbidden"), "403 the token does not allow this: its reason"},
		{"a page", local, page, "the answer is a page of HTML"},
		{"a redirect", local, elsewhere.ServeHTTP, "redirected to https://login.test/"},
		{"no listener", both, nil, "connection refused"},
		{"a proxy without the stream", local, http.NotFound, foreign},
		{"a proxy without its server", local, refusing(502, "upstream_unreachable"), "502 Bad Gateway: its reason"},
		{"a firewall", local, blocked, foreign},
	} {
		for _, provider := range tt.in {
			t.Run(tt.name+" "+provider, func(t *testing.T) {
				t.Parallel()
				h := scene.NewHost(t)
				at := &between{url: gone.URL}
				if tt.answer != nil {
					at = newBetween(t, tt.answer)
				}
				h.Env = append(h.Env, "ARBE_BOX_STREAM_URL="+at.url)
				if provider == "daytona" {
					d := fakedaytona.New(t)
					h.Env = append(h.Env, "DAYTONA_API_KEY="+d.Key, "DAYTONA_API_URL="+d.URL)
				}
				recipe := filepath.Join(h.Dir, "box.json")
				if err := os.WriteFile(recipe, []byte(h.BoxOfPi()), 0o600); err != nil {
					t.Fatal(err)
				}
				h.Thread = h.Arbe("thread", "new")
				out, err := h.Try(h.With("launch", []string{
					"--sandbox", provider, "--environment-file", recipe, "--thread", h.Thread, "--", "never started",
				})...)
				reason := "can't use the thread server at " + at.url + "/api/stream: "
				if err == nil || !strings.Contains(out, reason) || !strings.Contains(out, tt.want) {
					t.Errorf("the launch: %v\n%s", err, out)
				}
				if got := h.Arbe("thread", "status", h.Thread); got != thread.StatusFailed {
					t.Errorf("the run is %s", got)
				}
				all := scene.TextOf(h.Entries())
				if !strings.Contains(all, `"errorClass":"launch"`) ||
					!strings.Contains(all, `"message":"the sandbox `+provider+`:`) || !strings.Contains(all, reason) || strings.Contains(all, "session_started") {
					t.Errorf("the thread has %.3000s", all)
				}
				if list, err := h.Try("sandbox", "list", "--runtime", provider); err != nil || list != "" {
					t.Errorf("the sandboxes: %v\n%s", err, list)
				}
				at.mu.Lock()
				defer at.mu.Unlock()
				for _, token := range at.tokens {
					if strings.Contains(out+all, token) {
						t.Error("a token is on the terminal or on the thread")
					}
				}
			})
		}
	}
}

// A command is not started in a box that has lost its way to the thread server. Its end has the reason.
func TestFullExecWithoutWay(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, scene.Say("Done."))
	l, _ := h.Launch("--", "work")
	h.Ends(l.ThreadID)
	to, err := url.Parse(scene.Server)
	if err != nil {
		t.Fatal(err)
	}
	blocked := newBetween(t, page)
	open := newBetween(t, httputil.NewSingleHostReverseProxy(to).ServeHTTP)
	h.Env = append(h.Env, "ARBE_BOX_STREAM_URL="+open.url)
	if out, err := h.Try("exec", l.ThreadID, "--", "echo", "through"); err != nil || out != "through\n" {
		t.Errorf("exec: %v\n%s", err, out)
	}
	h.Env[len(h.Env)-1] = "ARBE_BOX_STREAM_URL=" + blocked.url
	out, err := h.Try("exec", l.ThreadID, "--", "touch", "made")
	const reason = "the answer is a page of HTML"
	if err == nil || !strings.Contains(out, reason) {
		t.Errorf("exec: %v\n%s", err, out)
	}
	if all := scene.TextOf(h.Entries()); strings.Count(all, reason) != 1 {
		t.Errorf("the thread has %.3000s", all)
	}
}

// A runner that loses the thread server before it has begun its run works on. Reconcile posts a provisional end with
// its log, and neither ends it nor deletes its box. Its own end replaces that one.
func TestFullRunnerWithoutWay(t *testing.T) {
	t.Parallel()
	h := scene.NewHost(t, scene.Say("Done."))
	to, err := url.Parse(scene.Server)
	if err != nil {
		t.Fatal(err)
	}
	through := httputil.NewSingleHostReverseProxy(to)
	var open atomic.Bool
	way := newBetween(t, func(w http.ResponseWriter, r *http.Request) {
		if !open.Load() && r.URL.RawQuery != "offset=now" {
			panic(http.ErrAbortHandler)
		}
		through.ServeHTTP(w, r)
	})
	h.Env = append(h.Env, "ARBE_BOX_STREAM_URL="+way.url)
	l, _ := h.Launch("--", "work")
	log := filepath.Join(filepath.Dir(l.WorkDir), "home", ".arbe", "runner.log")
	scene.Until(t, "the runner logs that it does not reach the server", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(text), "no answer from the thread server")
	})
	var out string
	scene.Until(t, "the run gets a provisional end", func() bool {
		var err error
		if out, err = h.Try("reconcile", "--orphan-after", "1s", l.ThreadID); err != nil {
			t.Fatalf("reconcile: %v\n%s", err, out)
		}
		return out != ""
	})
	if !strings.HasPrefix(out, "orphaned "+l.ThreadID+" not_begun: it is running in local:"+l.Sandbox.Ref) ||
		strings.Contains(out, "reaped") {
		t.Errorf("reconcile: %s", out)
	}
	all := scene.TextOf(h.Entries())
	if !strings.Contains(all, `"errorClass":"launch"`) || !strings.Contains(all, "no answer from the thread server") ||
		strings.Contains(all, "session_started") {
		t.Errorf("the thread has %.3000s", all)
	}
	if got := h.Arbe("thread", "status", l.ThreadID); got != thread.StatusFailed {
		t.Errorf("the run is %s", got)
	}
	open.Store(true)
	scene.Until(t, "the run completes", func() bool {
		return h.Arbe("thread", "status", l.ThreadID) == thread.StatusCompleted
	})
	if out, err := h.Try("reconcile", l.ThreadID); err != nil || !strings.Contains(out, "reaped "+l.ThreadID) {
		t.Errorf("reconcile after the end: %v\n%s", err, out)
	}
}
