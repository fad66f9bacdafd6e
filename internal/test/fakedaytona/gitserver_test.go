package fakedaytona_test

import (
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// gitServer is a git server with one repository, in which there is one commit. It wants a password.
func gitServer(t *testing.T, password string) (url, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "repo.git")
	git(t, t.TempDir(), "init", "-q", "--bare", "-b", "main", dir)
	git(t, dir, "config", "http.receivepack", "true")
	work := filepath.Join(t.TempDir(), "work")
	git(t, "", "clone", "-q", dir, work)
	git(t, work, "checkout", "-q", "-B", "main")
	if err := os.WriteFile(filepath.Join(work, "README"), []byte("hi\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", ".")
	git(t, work, "commit", "-q", "-m", "first")
	git(t, work, "push", "-q", "origin", "main")
	backend := &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(git(t, "", "--exec-path")), "git-http-backend"),
		Env:    []string{"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=git"},
		Stderr: io.Discard,
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p, _ := r.BasicAuth(); p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/repo.git", dir
}

// git runs git, with no settings but ours.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(
		os.Environ(),
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=Bea",
		"GIT_AUTHOR_EMAIL=bea@example.org",
		"GIT_COMMITTER_NAME=Bea",
		"GIT_COMMITTER_EMAIL=bea@example.org",
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}
