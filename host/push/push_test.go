package push_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/internal/test/program"
)

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
		reason string       // and what else is in it
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
			want: push.Outcome{Error: "git push failed: http://"}, reason: "the token was refused (401)", noPull: true,
		},
		{
			name: "a token that may not push", setup: func(_ *gitHub, o *push.Options) {
				o.Remote.URL = strings.Replace(o.Remote.URL, "repo.git", "closed.git", 1)
			},
			want: push.Outcome{Error: "git push failed: http://"}, reason: "the token may not push here (403)",
			noPull: true,
		},
		{
			name: "a repository that isn't there", setup: func(_ *gitHub, o *push.Options) {
				o.Remote.URL = strings.Replace(o.Remote.URL, "repo.git", "none.git", 1)
			},
			want: push.Outcome{Error: "git push failed: http://"}, reason: "no such repository", noPull: true,
		},
		{
			name: "a page",
			setup: func(_ *gitHub,
				o *push.Options,
			) {
				o.Remote.URL = strings.Replace(o.Remote.URL, "repo.git", "page", 1)
			},
			want: push.Outcome{Error: "git push failed: http://"}, reason: "the answer is not a git server's",
			noPull: true,
		},
		{
			name:  "a token that would break out of its header",
			setup: func(_ *gitHub, o *push.Options) { o.Token = "a\r\nb" },
			want:  push.Outcome{Error: "git push failed: the token holds control characters"}, noPull: true,
		},
		{
			name: "no pull request is wanted", setup: func(_ *gitHub, o *push.Options) { o.NoPR = true },
			want: push.Outcome{Pushed: true}, onGit: true, noPull: true,
		},
		{
			name: "a protected branch",
			setup: func(g *gitHub, _ *push.Options) {
				hook := filepath.Join(g.bare(), "hooks", "pre-receive")
				script := "#!/bin/sh\necho GH006: Protected branch update failed >&2\nexit 1\n"
				program.Write(g.t, hook, []byte(script))
			},
			want:   push.Outcome{Error: "git push failed: git push: exit status 1: "},
			reason: "GH006: Protected branch update failed", noPull: true,
		},
		{
			name: "one is open already", setup: func(g *gitHub, _ *push.Options) {
				g.pulls = []pull{
					{Head: map[string]string{"ref": "other"}, HTMLURL: "?"},
					{Head: map[string]string{"ref": "work/1"}, HTMLURL: first},
				}
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
			want: push.Outcome{Pushed: true, Error: "PR creation failed: POST "}, reason: "403 Resource not accessible by personal access token [redacted:GITHUB_TOKEN]",
			onGit: true, asked: []string{"GET ", "POST /pulls", "GET /pulls"}, noPull: true,
		},
		{
			name: "no such repository", setup: func(g *gitHub, _ *push.Options) { g.fault = status("GET", 404, `{"message":"Not Found"}`) },
			want: push.Outcome{Pushed: true, Error: "PR creation failed: GET "}, reason: "404 Not Found", onGit: true, asked: []string{"GET "}, noPull: true,
		},
		{
			name:  "an Enterprise server without a named API",
			setup: func(_ *gitHub, o *push.Options) { o.BaseURL = "" },
			want:  push.Outcome{Pushed: true, PRURL: first}, onGit: true, asked: []string{"GET ", "POST /pulls"},
		},
		{
			name: "no GitHub", setup: func(_ *gitHub, o *push.Options) { o.BaseURL = "http://127.0.0.1:1" },
			want: push.Outcome{Pushed: true, Error: "PR creation failed: Get "}, reason: "refused", onGit: true, noPull: true,
		},
		{
			name: "an address that is none", setup: func(_ *gitHub, o *push.Options) { o.BaseURL = "http://%" },
			want: push.Outcome{Pushed: true, Error: "PR creation failed: "}, onGit: true, noPull: true,
		},
		{
			name: "a repository that has moved", setup: func(g *gitHub, o *push.Options) {
				o.Remote.Name, o.Remote.URL = "old", strings.Replace(o.Remote.URL, "repo.git", "old.git", 1)
				g.moved = "/api/v3/repos/org/repo"
			},
			want: push.Outcome{Pushed: true, PRURL: first}, onGit: true, asked: once,
		},
		{
			name: "a repository that has moved to another host", setup: func(g *gitHub, o *push.Options) {
				o.Remote.Name = "old"
				other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					g.t.Error("another host was asked")
				}))
				g.t.Cleanup(other.Close)
				g.moved = other.URL
			},
			want: push.Outcome{Pushed: true, Error: "PR creation failed: "}, reason: "redirected to another host", onGit: true, noPull: true,
		},
		{
			name:  "an answer without an address",
			setup: func(g *gitHub, _ *push.Options) { g.fault = status("POST", 201, "{}") },
			want:  push.Outcome{Pushed: true, Error: "PR creation failed: GitHub's answer has no address of the pull request"},
			onGit: true, asked: []string{"GET ", "POST /pulls", "GET /pulls"}, noPull: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGitHub(t)
			o := g.options("work/1")
			if tt.setup != nil {
				tt.setup(g, &o)
			}
			h := &house{local.New(t.TempDir()), g, g.URL + "/git/org/repo.git"}
			b := h.clone()
			run(t, b, "git commit --quiet --allow-empty -m work")
			got := push.Push(t.Context(), b, o)
			message := got.Error
			bad := !strings.HasPrefix(message, tt.want.Error) || !strings.Contains(message, tt.reason)
			if bad || tt.want.Error == "" && message != "" {
				t.Errorf("the error is %q, want %q and %q", message, tt.want.Error, tt.reason)
			}
			for _, form := range append(tokenForms, "ghp_wrong", encoded("x-access-token:"+o.Token)) {
				if strings.Contains(message, form) {
					t.Errorf("the token is in %q", message)
				}
			}
			if strings.ContainsAny(message, "\r\n") {
				t.Errorf("several lines: %q", message)
			}
			if tt.want.Branch = "work/1"; tt.onGit {
				tt.want.Commit = git(t, b.WorkDir(), "rev-parse", "work/1")
			}
			if tip := g.tip("work/1"); tip != tt.want.Commit {
				t.Errorf("the server has %q, want %q", tip, tt.want.Commit)
			}
			if got.Error = tt.want.Error; !tt.onGit {
				got.Commit = "" // it may be known
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tt.asked, g.asked); d != "" {
				t.Error(d)
			}
			if !tt.noPull {
				body := "Thread: t1\nBranch: work/1\nRun: r1"
				want := []pull{{"[harness] make it better", body, "trunk", map[string]string{"ref": "work/1"}, first}}
				if d := cmp.Diff(want, g.pulls); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// A pull request of the default branch itself is refused before the run. After a run the branch is pushed without one.
func TestDefaultBranch(t *testing.T) {
	t.Parallel()
	h := localHouse(t)
	o := h.options("trunk")
	if _, err := push.Check(t.Context(), o); err == nil || !strings.Contains(err.Error(), `trunk is the default branch`) {
		t.Errorf("checked: %v", err)
	}
	b := h.box(sandbox.Options{Repo: h.repo, Branch: "trunk", Token: token})
	run(t, b, "git commit --quiet --allow-empty -m work")
	got := push.Push(t.Context(), b, o)
	if !got.Pushed || !strings.HasPrefix(got.Error, "PR creation failed: trunk is the default branch") {
		t.Errorf("got %+v", got)
	}
	if o.NoPR = true; h.tip("trunk") != git(t, b.WorkDir(), "rev-parse", "HEAD") {
		t.Errorf("trunk is at %s", h.tip("trunk"))
	}
	if commit, err := push.Check(t.Context(), o); err != nil || commit != h.tip("trunk") {
		t.Errorf("checked: %q, %v", commit, err)
	}
}

func TestTitle(t *testing.T) {
	t.Parallel()
	h := localHouse(t)
	b := h.clone()
	run(t, b, "git commit --quiet --allow-empty -m work")
	for intent, want := range map[string]string{
		"":                       "[harness] work/1",
		" \t":                    "[harness] work/1",
		strings.Repeat("é", 300): "[harness] " + strings.Repeat("é", 246),
		strings.Repeat("x", 246): "[harness] " + strings.Repeat("x", 246),
	} {
		h.pulls = nil
		o := h.options("work/1")
		o.Intent = intent
		got := push.Push(t.Context(), b, o)
		if got.Error != "" || len(h.pulls) != 1 || h.pulls[0].Title != want || utf8.RuneCountInString(want) > 256 {
			t.Errorf("%q: %+v, %+v", intent, got, h.pulls)
		}
	}
}

// broken is a box of which no command ends well.
type broken struct{ err error }

func (broken) WorkDir() string { return "/work" }
func (broken) Home() string    { return "/home" }

func (b broken) Exec(context.Context, sandbox.Command) (sandbox.Result, error) {
	return sandbox.Result{}, b.err
}
func (b broken) Download(context.Context, string, io.Writer) error { return b.err }

// A reason is one line of bounded length, without the token.
func TestReason(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	text := "a\n\tb " + token + " " + strings.Repeat("é", 1000)
	got := push.Push(t.Context(), broken{errors.New(text)}, g.options("work/1"))
	want := "git push failed: pack the branch work/1 in the box: a b [redacted:GITHUB_TOKEN] é"
	if !strings.HasPrefix(got.Error, want) || len(got.Error) > 1100 || !utf8.ValidString(got.Error) {
		t.Errorf("got %q", got.Error)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got = push.Push(ctx, broken{}, g.options("work/1"))
	if got.Pushed || !strings.Contains(got.Error, "context canceled") {
		t.Errorf("got %+v", got)
	}
}

func TestOutcomeJSON(t *testing.T) {
	for want, o := range map[string]push.Outcome{
		`{"pushed":false,"branch":"b","error":"GITHUB_TOKEN required for push"}`: push.Push(t.Context(), nil, push.Options{
			Branch: "b", Remote: push.Remote{"https://github.example/a/b.git", "a", "b"},
		}),
		`{"pushed":true,"branch":"b","commit":"c","prUrl":"https://github.example/a/b/pull/1"}`: {
			Pushed: true, Branch: "b", Commit: "c", PRURL: "https://github.example/a/b/pull/1",
		},
	} {
		if got, err := json.Marshal(o); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
