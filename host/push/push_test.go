package push_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/push"
)

const token = "ghp_0123456789+/abcdef"

// gitHub is a double of GitHub: a real git server, and as much of its REST API as is asked for.
type gitHub struct {
	*httptest.Server
	t    *testing.T
	root string // org/repo.git is in it

	mu    sync.Mutex
	asked []string // each request of the API
	pulls []pull
	fault func(w http.ResponseWriter, r *http.Request) (answered bool) // may be nil
	moved string                                                       // where the repository org/old is now
	lost  bool                                                         // the answers to new pull requests are lost
}

type pull struct {
	Title   string            `json:"title"`
	Body    string            `json:"body"`
	Base    string            `json:"-"`
	Head    map[string]string `json:"head"`
	HTMLURL string            `json:"html_url"`
}

func newGitHub(t *testing.T) *gitHub {
	t.Helper()
	g := &gitHub{t: t, root: t.TempDir()}
	repo := filepath.Join(g.root, "org", "repo.git")
	git(t, g.root, "init", "--quiet", "--bare", "--initial-branch=trunk", repo)
	git(t, repo, "config", "http.receivepack", "true")
	backend := strings.TrimSpace(git(t, g.root, "--exec-path")) + "/git-http-backend"
	served := &cgi.Handler{Path: backend, Root: "/git", Dir: g.root, Env: []string{"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=me"}}
	mux := http.NewServeMux()
	mux.HandleFunc("/git/", func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		served.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /api/v3/repos/org/repo", g.api(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"repo","owner":{"login":"org"},"default_branch":"trunk"}`)
	}))
	mux.HandleFunc("/api/v3/repos/org/old", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, g.moved, http.StatusMovedPermanently)
	})
	mux.HandleFunc("POST /api/v3/repos/org/repo/pulls", g.api(g.create))
	mux.HandleFunc("GET /api/v3/repos/org/repo/pulls", g.api(func(w http.ResponseWriter, r *http.Request) {
		open := slices.DeleteFunc(slices.Clone(g.pulls), func(p pull) bool { return "org:"+p.Head["ref"] != r.URL.Query().Get("head") })
		g.answer(w, http.StatusOK, open)
	}))
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

// api wraps a handler: one request at a time, noted, with the token, and with the fault that is wanted.
func (g *gitHub) api(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.asked = append(g.asked, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v3/repos/org/repo"))
		if r.Header.Get("Authorization") != "Bearer "+token {
			g.answer(w, http.StatusUnauthorized, map[string]string{"message": "Bad credentials"})
			return
		}
		if g.fault == nil || !g.fault(w, r) {
			h(w, r)
		}
	}
}

func (g *gitHub) create(w http.ResponseWriter, r *http.Request) {
	var in struct{ Title, Body, Head, Base string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		g.t.Error(err)
	}
	for _, p := range g.pulls {
		if p.Head["ref"] == in.Head {
			g.answer(w, http.StatusUnprocessableEntity, map[string]any{
				"message": "Validation Failed", "errors": []any{map[string]string{"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for org:" + in.Head + "."}},
			})
			return
		}
	}
	p := pull{in.Title, in.Body, in.Base, map[string]string{"ref": in.Head}, fmt.Sprintf("https://github.example/org/repo/pull/%d", len(g.pulls)+1)}
	g.pulls = append(g.pulls, p)
	if g.lost {
		panic(http.ErrAbortHandler)
	}
	g.answer(w, http.StatusCreated, p)
}

func (g *gitHub) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		g.t.Error(err)
	}
}

// clone is a box with a branch that nobody has seen yet.
type clone struct {
	t           *testing.T
	dir, remote string
}

func (g *gitHub) box(branch string) *clone {
	c := &clone{g.t, g.t.TempDir(), g.URL + "/git/org/repo.git"}
	git(g.t, c.dir, "init", "--quiet", "--initial-branch="+branch)
	git(g.t, c.dir, "-c", "user.name=me", "-c", "user.email=me@example", "commit", "--quiet", "--allow-empty", "-m", "work")
	return c
}

func (c *clone) Push(ctx context.Context, branch, token string) error {
	cmd := exec.CommandContext(ctx, "git", "push", "--quiet", c.remote, "HEAD:refs/heads/"+branch)
	cmd.Dir = c.dir
	basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))
	cmd.Env = append(gitEnv(c.dir), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader", "GIT_CONFIG_VALUE_0=Authorization: Basic "+basic)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git: %w: %s (with %s and %s)", err, out, token, basic) // as a careless box might say it
	}
	return nil
}

func gitEnv(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C"}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Env = dir, gitEnv(dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (g *gitHub) options(branch string) push.Options {
	return push.Options{
		Owner: "org", Repo: "repo", Branch: branch, Intent: "make  it\nbetter", Thread: "t1", Run: "r1", Token: token,
		BaseURL: g.URL, HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

func TestPush(t *testing.T) {
	const first = "https://github.example/org/repo/pull/1"
	once := []string{"GET ", "POST /pulls"}
	status := func(method string, code int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != method {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprint(w, body)
			return true
		}
	}
	for _, tt := range []struct {
		name   string
		setup  func(*gitHub, *push.Options)
		want   push.Outcome // Error is how it begins
		says   string       // and what else is in it
		onGit  bool         // the branch is on the server
		asked  []string
		noPull bool
	}{
		{name: "all is well", want: push.Outcome{Pushed: true, PRURL: first}, onGit: true, asked: once},
		{
			name: "no token", setup: func(_ *gitHub, o *push.Options) { o.Token = " \n" },
			want: push.Outcome{Error: "GITHUB_TOKEN required for push"}, noPull: true,
		},
		{
			name: "a token that git refuses", setup: func(_ *gitHub, o *push.Options) { o.Token = "ghp_wrong" },
			want: push.Outcome{Error: "git push failed: git: exit status 128: "}, says: "could not read Username", noPull: true,
		},
		{
			name: "a protected branch",
			setup: func(g *gitHub, _ *push.Options) {
				hook := filepath.Join(g.root, "org", "repo.git", "hooks", "pre-receive")
				if err := os.WriteFile(hook, []byte("#!/bin/sh\necho GH006: Protected branch update failed >&2\nexit 1\n"), 0o755); err != nil {
					g.t.Fatal(err)
				}
			},
			want: push.Outcome{Error: "git push failed: git: exit status 1: "}, says: "GH006: Protected branch update failed", noPull: true,
		},
		{
			name: "one is open already", setup: func(g *gitHub, _ *push.Options) {
				g.pulls = []pull{{Head: map[string]string{"ref": "other"}, HTMLURL: "?"}, {Head: map[string]string{"ref": "work/1"}, HTMLURL: first}}
			},
			want: push.Outcome{Pushed: true, PRURL: first}, onGit: true, asked: []string{"GET ", "POST /pulls", "GET /pulls"}, noPull: true,
		},
		{
			name: "the answer is lost", setup: func(g *gitHub, _ *push.Options) { g.lost = true },
			want: push.Outcome{Pushed: true, PRURL: first}, onGit: true, asked: []string{"GET ", "POST /pulls", "GET /pulls"},
		},
		{
			name: "no permission", setup: func(g *gitHub, _ *push.Options) {
				g.fault = status("POST", 403, `{"message":"Resource not accessible by personal access token `+token+`"}`)
			},
			want: push.Outcome{Pushed: true, Error: "PR creation failed: POST "}, says: "403 Resource not accessible by personal access token [redacted:GITHUB_TOKEN]",
			onGit: true, asked: []string{"GET ", "POST /pulls", "GET /pulls"}, noPull: true,
		},
		{
			name: "no such repository", setup: func(g *gitHub, _ *push.Options) { g.fault = status("GET", 404, `{"message":"Not Found"}`) },
			want: push.Outcome{Pushed: true, Error: "PR creation failed: GET "}, says: "404 Not Found", onGit: true, asked: []string{"GET "}, noPull: true,
		},
		{
			name: "no GitHub", setup: func(_ *gitHub, o *push.Options) { o.BaseURL = "http://127.0.0.1:1" },
			want: push.Outcome{Pushed: true, Error: "PR creation failed: Get "}, says: "refused", onGit: true, noPull: true,
		},
		{
			name: "an address that is none", setup: func(_ *gitHub, o *push.Options) { o.BaseURL = "http://%" },
			want: push.Outcome{Pushed: true, Error: "PR creation failed: "}, onGit: true, noPull: true,
		},
		{
			name: "a repository that has moved", setup: func(g *gitHub, o *push.Options) {
				o.Repo = "old"
				g.moved = "/api/v3/repos/org/repo"
			},
			want: push.Outcome{Pushed: true, PRURL: first}, onGit: true, asked: once,
		},
		{
			name: "a repository that has moved to another host", setup: func(g *gitHub, o *push.Options) {
				o.Repo = "old"
				other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { g.t.Error("another host was asked") }))
				g.t.Cleanup(other.Close)
				g.moved = other.URL
			},
			want: push.Outcome{Pushed: true, Error: "PR creation failed: "}, says: "redirected to another host", onGit: true, noPull: true,
		},
		{
			name: "an answer without an address", setup: func(g *gitHub, _ *push.Options) { g.fault = status("POST", 201, "{}") },
			want:  push.Outcome{Pushed: true, Error: "PR creation failed: GitHub did not say where the pull request is"},
			onGit: true, asked: []string{"GET ", "POST /pulls", "GET /pulls"}, noPull: true,
		},
		{
			name: "the default branch itself", setup: func(_ *gitHub, o *push.Options) { o.Branch = "trunk" },
			want: push.Outcome{Pushed: true, Error: `PR creation failed: there is nothing to ask for: the branch is trunk`}, onGit: true, asked: []string{"GET "}, noPull: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			o := g.options("work/1")
			if tt.setup != nil {
				tt.setup(g, &o)
			}
			got := push.Push(t.Context(), g.box("work/1"), o)
			message := got.Error
			if !strings.HasPrefix(message, tt.want.Error) || !strings.Contains(message, tt.says) || tt.want.Error == "" && message != "" {
				t.Errorf("says %q, want %q and %q", message, tt.want.Error, tt.says)
			}
			got.Error = tt.want.Error
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			for _, form := range []string{token, "ghp_wrong", base64.StdEncoding.EncodeToString([]byte("x-access-token:" + o.Token))} {
				if strings.Contains(message, form) {
					t.Errorf("the token is in %q", message)
				}
			}
			if strings.ContainsAny(message, "\r\n") {
				t.Errorf("several lines: %q", message)
			}
			refs := git(t, filepath.Join(g.root, "org", "repo.git"), "for-each-ref", "--format=%(refname)")
			if strings.Contains(refs, "refs/heads/"+o.Branch) != tt.onGit {
				t.Errorf("the server has %q", refs)
			}
			if d := cmp.Diff(tt.asked, g.asked); d != "" {
				t.Error(d)
			}
			if !tt.noPull {
				want := []pull{{"[harness] make it better", "Thread: t1\nBranch: work/1\nRun: r1", "trunk", map[string]string{"ref": "work/1"}, first}}
				if d := cmp.Diff(want, g.pulls); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// box is a box whose pushes end as they are told.
type box struct{ err error }

func (b box) Push(context.Context, string, string) error { return b.err }

// Pushing again finds what is there.
func TestPushAgain(t *testing.T) {
	g := newGitHub(t)
	b := g.box("work/1")
	for range 2 {
		if got := push.Push(t.Context(), b, g.options("work/1")); !got.Pushed || got.PRURL != "https://github.example/org/repo/pull/1" || got.Error != "" {
			t.Errorf("got %+v", got)
		}
	}
}

func TestTitle(t *testing.T) {
	for intent, want := range map[string]string{
		"":                       "[harness] work/1",
		" \t":                    "[harness] work/1",
		strings.Repeat("é", 300): "[harness] " + strings.Repeat("é", 246),
		strings.Repeat("x", 246): "[harness] " + strings.Repeat("x", 246),
	} {
		g := newGitHub(t)
		o := g.options("work/1")
		o.Intent = intent
		got := push.Push(t.Context(), box{}, o)
		if got.Error != "" || len(g.pulls) != 1 || g.pulls[0].Title != want || utf8.RuneCountInString(want) > 256 {
			t.Errorf("%q: %+v, %+v", intent, got, g.pulls)
		}
	}
}

// A reason is one line of bounded length, and a context that is done is one, too.
func TestReason(t *testing.T) {
	got := push.Push(t.Context(), box{errors.New("a\n\tb " + strings.Repeat("é", 1000))}, push.Options{Token: token})
	if !strings.HasPrefix(got.Error, "git push failed: a b é") || len(got.Error) > 1100 || !utf8.ValidString(got.Error) {
		t.Errorf("got %q", got.Error)
	}
	g := newGitHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := push.Push(ctx, box{}, g.options("work/1")); !got.Pushed || !strings.Contains(got.Error, "context canceled") {
		t.Errorf("got %+v", got)
	}
}

func TestOutcomeJSON(t *testing.T) {
	for want, o := range map[string]push.Outcome{
		`{"pushed":false,"error":"GITHUB_TOKEN required for push"}`:   push.Push(t.Context(), nil, push.Options{}),
		`{"pushed":true,"prUrl":"https://github.example/a/b/pull/1"}`: {Pushed: true, PRURL: "https://github.example/a/b/pull/1"},
	} {
		if got, err := json.Marshal(o); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
