package push_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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
	"time"

	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/daytona"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

const token = "ghp_0123456789+/abcdef"

// tokenForms are the forms in which the token travels.
var tokenForms = []string{
	token, encoded("git:" + token), encoded("x-access-token:" + token),
}

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// gitHub is a double of GitHub: a real git server, and as much of its REST API as a push uses. The repository org/repo
// has one commit on trunk, and org/old has moved there.
type gitHub struct {
	*httptest.Server
	t    *testing.T
	root string // org/repo.git is in it

	mu    sync.Mutex
	asked []string // each request of the API
	pulls []pull
	fault func(w http.ResponseWriter, r *http.Request) (answered bool) // may be nil
	moved string                                                       // where the API has org/old now
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
	seed := t.TempDir()
	git(t, seed, "init", "--quiet", "--initial-branch=trunk")
	write(t, seed+"/README", "read me\n")
	commit(t, seed, "first")
	git(t, seed, "clone", "--quiet", "--bare", seed, g.bare())
	git(t, g.bare(), "config", "uploadpack.allowFilter", "true")
	backend := strings.TrimSpace(git(t, g.root, "--exec-path")) + "/git-http-backend"
	served := &cgi.Handler{
		Path: backend, Root: "/git", Dir: g.root,
		Env: []string{
			"GIT_PROJECT_ROOT=" + g.root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=me",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/git/", func(w http.ResponseWriter, r *http.Request) {
		switch _, password, _ := r.BasicAuth(); {
		case password != token:
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you", http.StatusUnauthorized)
		case strings.HasPrefix(r.URL.Path, "/git/org/old.git/"):
			to := *r.URL
			to.Path = strings.Replace(to.Path, "old", "repo", 1)
			http.Redirect(w, r, to.String(), http.StatusMovedPermanently)
		case strings.HasPrefix(r.URL.Path, "/git/org/page"):
			fmt.Fprint(w, "<html>")
		case strings.HasPrefix(r.URL.Path, "/git/org/closed.git/"):
			http.Error(w, "no", http.StatusForbidden)
		default:
			spool(t, r)
			served.ServeHTTP(w, r)
		}
	})
	mux.HandleFunc("GET /api/v3/repos/org/repo", g.api(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"name":"repo","owner":{"login":"org"},"default_branch":"trunk"}`)
	}))
	mux.HandleFunc("/api/v3/repos/org/old", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, g.moved, http.StatusMovedPermanently)
	})
	mux.HandleFunc("POST /api/v3/repos/org/repo/pulls", g.api(g.create))
	mux.HandleFunc("GET /api/v3/repos/org/repo/pulls", g.api(func(w http.ResponseWriter, r *http.Request) {
		open := slices.DeleteFunc(slices.Clone(g.pulls), func(p pull) bool {
			return "org:"+p.Head["ref"] != r.URL.Query().Get("head")
		})
		g.answer(w, http.StatusOK, open)
	}))
	g.Server = httptest.NewServer(mux)
	t.Cleanup(g.Close)
	return g
}

// spool gives a request of unknown length one, which CGI wants.
func spool(t *testing.T, r *http.Request) {
	if r.ContentLength >= 0 {
		return
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "body"))
	if err == nil {
		r.ContentLength, err = io.Copy(f, r.Body)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		t.Error(err)
	}
	r.Body, r.TransferEncoding = f, nil // the server closes the request's own body
	t.Cleanup(func() { f.Close() })
}

// bare is the folder of org/repo.
func (g *gitHub) bare() string { return filepath.Join(g.root, "org", "repo.git") }

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
				"message": "Validation Failed",
				"errors": []any{map[string]string{
					"resource": "PullRequest", "code": "custom", "message": "A pull request already exists for org:" +
						in.Head + ".",
				}},
			})
			return
		}
	}
	address := fmt.Sprintf("https://github.example/org/repo/pull/%d", len(g.pulls)+1)
	p := pull{in.Title, in.Body, in.Base, map[string]string{"ref": in.Head}, address}
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

// tip is the commit that a branch of the server is at, "" where there is none.
func (g *gitHub) tip(branch string) string {
	return git(g.t, g.bare(), "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
}

func (g *gitHub) options(branch string) push.Options {
	return push.Options{
		Remote: push.Remote{URL: g.URL + "/git/org/repo.git", Owner: "org", Name: "repo"},
		Branch: branch, Intent: "make  it\nbetter", Thread: "t1", Run: "r1", Token: token,
		BaseURL: g.URL, HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// house is a provider of boxes that have org/repo on the branch work/1.
type house struct {
	sandbox.Provider
	*gitHub
	repo string
}

func localHouse(t *testing.T) *house {
	g := newGitHub(t)
	return &house{local.New(t.TempDir()), g, g.URL + "/git/org/repo.git"}
}

func daytonaHouse(t *testing.T) *house { return daytonaAt(t, 2*time.Millisecond) }

// daytonaAt is a house at Daytona that looks at its commands at some pace.
func daytonaAt(t *testing.T, pace time.Duration) *house {
	g, fake := newGitHub(t), fakedaytona.New(t)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	p, err := daytona.New(daytona.Config{
		Key: fake.Key, URL: fake.URL, GitHub: g.URL + "/git", Pace: pace, Transport: tr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &house{p, g, "org/repo"}
}

// box makes a box that goes with the test, with the test's git server as its GitHub.
func (h *house) box(o sandbox.Options) sandbox.Sandbox {
	h.t.Helper()
	o.GitHub = h.URL + "/git"
	b, err := h.Create(h.t.Context(), o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := h.Destroy(context.Background(), b.Ref().ID); err != nil {
			h.t.Error("destroy:", err)
		}
	})
	return b
}

// clone makes a box with org/repo on the branch work/1.
func (h *house) clone() sandbox.Sandbox {
	h.t.Helper()
	return h.box(sandbox.Options{Repo: h.repo, Branch: "work/1", Token: token})
}

// each runs a test on both providers.
func each(t *testing.T, test func(t *testing.T, h *house)) {
	t.Parallel()
	t.Run("local", func(t *testing.T) { t.Parallel(); test(t, localHouse(t)) })
	t.Run("daytona", func(t *testing.T) { t.Parallel(); test(t, daytonaHouse(t)) })
}

// identity is for commits that the agent makes.
const identity = `
export GIT_AUTHOR_NAME=agent GIT_AUTHOR_EMAIL=a@example
export GIT_COMMITTER_NAME=agent GIT_COMMITTER_EMAIL=a@example
`

// run runs a script of the agent's in a box.
func run(t *testing.T, b sandbox.Sandbox, script string) string {
	t.Helper()
	res, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-ec", identity + script}})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%v, exit status %d: %s", err, res.ExitCode, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// git runs git on the host, apart from the configuration of this machine.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func commit(t *testing.T, dir, message string) {
	t.Helper()
	git(t, dir, "add", "--all")
	git(t, dir, "-c", "user.name=me", "-c", "user.email=me@example", "commit", "--quiet", "--allow-empty", "-m",
		message)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
