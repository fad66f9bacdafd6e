package scene

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// GitHubToken is the token that the forge requires for pushes and for requests of its API.
const GitHubToken = "github-token-0001"

// Pull is a pull request.
type Pull struct{ Title, Head, Base, Body string }

// Forge is a double of GitHub with the repository acme/widgets: a real git server, and its API for pull requests.
type Forge struct {
	*httptest.Server
	t    *testing.T
	Bare string // the repository's folder

	mu    sync.Mutex
	pulls []Pull
}

// NewForge gives a host a forge as its GitHub.
func NewForge(t *testing.T, h *Host) *Forge {
	t.Helper()
	f := &Forge{t: t, Bare: filepath.Join(h.Dir, "acme", "widgets.git")}
	repo := filepath.Join(h.Dir, "repo")
	f.Git("init", "-q", "-b", "trunk", repo)
	as := []string{"-C", repo, "-c", "user.name=n", "-c", "user.email=e@example.org"}
	f.Git(append(as, "commit", "-q", "--allow-empty", "-m", "first")...)
	f.Git("clone", "-q", "--bare", repo, f.Bare)
	f.Git("-C", f.Bare, "config", "http.receivepack", "true")
	backend := http.StripPrefix("/acme", &cgi.Handler{
		Path: filepath.Join(f.Git("--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + filepath.Dir(f.Bare), "GIT_HTTP_EXPORT_ALL=1"}, Stderr: io.Discard,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v3/repos/acme/widgets", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"default_branch":"trunk"}`)
	})
	mux.HandleFunc("POST /api/v3/repos/acme/widgets/pulls", func(w http.ResponseWriter, r *http.Request) {
		var pull Pull
		authorized := r.Header.Get("Authorization")
		if err := json.NewDecoder(r.Body).Decode(&pull); err != nil || authorized != "Bearer "+GitHubToken {
			t.Errorf("%v, authorized by %q", err, authorized)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.pulls = append(f.pulls, pull)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"html_url":"https://github.example/acme/widgets/pull/%d"}`, len(f.pulls))
	})
	mux.HandleFunc("/acme/", func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if strings.Contains(r.URL.String(), "receive-pack") && password != GitHubToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	h.Env = append(h.Env, "GITHUB_API_URL="+f.URL, "GITHUB_SERVER_URL="+f.URL)
	return f
}

// Git runs git, and returns what it prints.
func (f *Forge) Git(args ...string) string {
	f.t.Helper()
	out, err := exec.Command("git", args...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Pulls returns the pull requests.
func (f *Forge) Pulls() []Pull {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pulls)
}
