package sandbox_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// token is the token that the git server requires for org/private, and for any push.
const token = "ghp_the-token-of-the-test"

// gitServer is git's own server on loopback.
type gitServer struct {
	URL       string
	dir       string
	passwords atomic.Int64 // requests that had one
}

func newGitServer(t *testing.T) *gitServer {
	t.Helper()
	s := &gitServer{dir: t.TempDir()}
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + s.dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=git"}, Stderr: io.Discard,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if password != "" {
			s.passwords.Add(1)
		}
		push := strings.HasSuffix(r.URL.Path, "git-receive-pack") || r.URL.Query().Get("service") == "git-receive-pack"
		if password != token && (push || strings.HasPrefix(r.URL.Path, "/org/private")) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL
	for _, name := range []string{"repo", "private"} {
		seed := t.TempDir()
		if err := os.WriteFile(filepath.Join(seed, "README"), []byte("read me\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		git(t, seed, "init", "-q", "-b", "trunk")
		git(t, seed, "add", ".")
		git(t, seed, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "first")
		git(t, seed, "branch", "other")
		git(t, seed, "clone", "-q", "--bare", seed, filepath.Join(s.dir, "org", name+".git"))
	}
	return s
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// bare is the folder of one of the server's repositories.
func (s *gitServer) bare(name string) string { return filepath.Join(s.dir, "org", name+".git") }

func TestRepository(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		private := strings.Replace(h.repo, "org/repo", "org/private", 1)
		b := h.create(t, sandbox.Options{Repo: private, Branch: "arbe/work", Token: token})
		if got := git(t, b.WorkDir(), "symbolic-ref", "--short", "HEAD"); got != "arbe/work" {
			t.Errorf("the branch is %s", got)
		}
		if first, want := git(t, b.WorkDir(), "rev-parse", "HEAD"),
			git(t, h.repos.bare("private"), "rev-parse", "trunk"); first != want {
			t.Errorf("it begins at %s, want %s", first, want)
		}
		if all := grep(t, filepath.Dir(b.Home()), token) + grep(t, b.WorkDir(), token); all != "" {
			t.Errorf("the token stands in %s", all)
		}
		if err := os.WriteFile(b.WorkDir()+"/new", []byte("new"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(b.WorkDir() + "/README"); err != nil {
			t.Fatal(err)
		}
		commit, err := b.Snapshot(t.Context(), "it's $(done)\n\nall of it")
		if err != nil {
			t.Fatal(err)
		}
		if got := git(t, b.WorkDir(), "log", "-1", "--format=%H %an %B"); got !=
			commit+" arbe it's $(done)\n\nall of it" {
			t.Errorf("committed: %s", got)
		}
		if got := git(t, b.WorkDir(), "ls-files"); got != "new" {
			t.Errorf("it holds %s", got)
		}
		empty, err := b.Snapshot(t.Context(), "nothing new")
		if err != nil || empty == commit || git(t, b.WorkDir(), "rev-parse", "HEAD^") != commit {
			t.Errorf("an empty one: %s, %v", empty, err)
		}
	})
}

// grep names a file below dir that holds text.
func grep(t *testing.T, dir, text string) string {
	t.Helper()
	cmd := exec.Command("grep", "-rlFf", "-", dir)
	cmd.Stdin = strings.NewReader(text) // another test looks at command lines
	out, err := cmd.Output()
	if err != nil && len(out) > 0 {
		t.Fatal(err)
	}
	return string(out)
}

func TestSnapshotWithoutRepository(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		run(t, b, "echo x >file")
		commit, err := b.Snapshot(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		if got := git(t, b.WorkDir(), "log", "--format=%H"); got != commit ||
			git(t, b.WorkDir(), "ls-files") != "file" {
			t.Errorf("got %s, want %s", got, commit)
		}
	})
}

func TestDefaultBranch(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{Repo: h.repo, Branch: "trunk"})
		if got := git(t, b.WorkDir(), "symbolic-ref", "--short", "HEAD"); got != "trunk" {
			t.Errorf("the branch is %s", got)
		}
	})
}

// TestTokenStaysHome: org/repo is of the GitHub server that is named, and no other server gets its token, wherever the
// address of a repository leads.
func TestTokenStaysHome(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		enterprise := newGitServer(t)
		of := func(repo string) sandbox.Options {
			return sandbox.Options{Repo: repo, GitHub: enterprise.URL + "/", Branch: "work", Token: token}
		}
		for _, repo := range []string{"org/private", enterprise.URL + "/org/private.git"} {
			b := h.create(t, of(repo))
			want := enterprise.URL + "/org/private.git"
			if got := git(t, b.WorkDir(), "remote", "get-url", "origin"); got != want {
				t.Errorf("%s was cloned from %s, want %s", repo, got, want)
			}
		}
		if enterprise.passwords.Load() == 0 {
			t.Error("the server did not get its token")
		}
		for _, name := range []string{"private", "repo"} {
			b, err := h.Create(t.Context(), of(h.repos.URL+"/org/"+name+".git"))
			if err == nil {
				err = h.Destroy(t.Context(), b.Ref().ID)
			}
			if err != nil && strings.Contains(err.Error(), token) {
				t.Error(err)
			}
		}
		if n := h.repos.passwords.Load(); n > 0 {
			t.Errorf("another server got the token %d times", n)
		}
	})
}

// TestCloneFails holds that no box is left where its repository can't be cloned, and that no error has the token.
func TestCloneFails(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		for _, o := range []sandbox.Options{
			{Repo: strings.Replace(h.repo, "org/repo", "org/private", 1), Token: "ghp_wrong-token"},
			{Repo: strings.Replace(h.repo, "org/repo", "org/none", 1)},
			{Repo: h.repo, Branch: "bad..name"},
		} {
			_, err := h.Create(t.Context(), o)
			if err == nil || o.Token != "" && strings.Contains(err.Error(), o.Token) {
				t.Errorf("%s: %v", o.Repo, err)
			}
			t.Log(err)
		}
		if boxes, err := h.List(t.Context(), nil); err != nil || len(boxes) > 0 {
			t.Errorf("left: %v, %v", boxes, err)
		}
	})
}

// TestSecretsInNoCommandLine watches the command lines of all processes while secrets are in use.
func TestSecretsInNoCommandLine(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		const secret = "sk-very-secret-value"
		stop, seen := make(chan struct{}), make(chan string, 1)
		go func() {
			defer close(seen)
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
				for _, name := range names {
					line, _ := os.ReadFile(name) // it may have ended
					if bytes.Contains(line, []byte(secret)) || bytes.Contains(line, []byte(token)) {
						seen <- string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
						return
					}
				}
			}
		}()
		b := h.create(t, sandbox.Options{
			Repo: strings.Replace(h.repo, "org/repo", "org/private", 1), Branch: "b", Token: token,
			Env: map[string]string{"BOX_SECRET": secret},
		})
		c := script(`sleep 0.2; printf %s "$SECRET" | wc -c; printf %s "$SECRET" >got`)
		c.Env = map[string]string{"SECRET": secret}
		if res, err := b.Exec(t.Context(), c); err != nil || read(b.WorkDir()+"/got") != secret {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := b.Detach(t.Context(), c, "log"); err != nil {
			t.Error(err)
		}
		soon(t, "it has run", func() bool { return read(b.Home()+"/log") != "" })
		close(stop)
		for line := range seen {
			t.Errorf("a secret stands in %q", line)
		}
		if h.fake == nil {
			return
		}
		for _, r := range h.fake.Requests() {
			asCommand := strings.Contains(r.Path, "/exec") && bytes.Contains(bytes.Split(r.Body, []byte(`"envs"`))[0], []byte(secret))
			if strings.Contains(r.Path, secret) || strings.Contains(r.Path, token) ||
				strings.Contains(r.Path, h.fake.Key) || asCommand {
				t.Errorf("a secret stands in %s %s %s", r.Method, r.Path, r.Body)
			}
		}
	})
}
