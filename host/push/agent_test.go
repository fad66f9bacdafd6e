package push_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// stranger is a server that nothing should reach. It notes what does.
type stranger struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newStranger(t *testing.T) *stranger {
	s := &stranger{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header))
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *stranger) untouched(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		t.Errorf("another host was asked: %s", r)
	}
}

// An agent that rewrites all of git's configuration in its box gets no token, and the branch goes to the launch's
// remote. The token stands in no command line and in no file.
func TestAgentRewritesConfiguration(t *testing.T) {
	// A git in front of the real one logs the command lines of all that git starts.
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	log := filepath.Join(t.TempDir(), "log")
	write(t, bin+"/git", "#!/bin/sh\nLOG="+log+" GIT="+real+`
		printf '%s ' git "$@" >>$LOG; echo >>$LOG
		GIT_TRACE=$LOG exec $GIT "$@"
	`)
	if err := os.Chmod(bin+"/git", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for name, house := range map[string]func(*testing.T) *house{"local": localHouse, "daytona": daytonaHouse} {
		t.Run(name, func(t *testing.T) {
			temp, home := t.TempDir(), t.TempDir()
			t.Setenv("TMPDIR", temp)
			t.Setenv("HOME", home) // of the user: no wall keeps the agent of a local box from it
			h, evil := house(t), newStranger(t)
			system := filepath.Join(t.TempDir(), "system.gitconfig")
			env := map[string]string{"GIT_CONFIG_SYSTEM": system}
			b := h.box(sandbox.Options{Repo: h.repo, Branch: "work/1", Token: token, Env: env})
			trap := filepath.Join(b.Home(), "trap")
			run(t, b, `
				echo made >made; git add made; git commit -q -m work; echo more >more
				printf '#!/bin/sh\nenv >'"$HOME"'/trapped; cat >>'"$HOME"'/trapped\n' >"$HOME/trap"; chmod +x "$HOME/trap"
				for file in .git/config "$HOME/.gitconfig" `+system+" "+home+`/.gitconfig; do
					c() { git config --file "$file" "$@"; }
					c remote.origin.url `+evil.URL+`/x.git
					c remote.origin.pushurl `+evil.URL+`/x.git
					c remote.pushDefault origin
					c "url.`+evil.URL+`/.insteadOf" `+h.URL+`/
					c "url.`+evil.URL+`/p/.pushInsteadOf" `+h.URL+`/
					c credential.helper "`+trap+`"
					c core.askPass "`+trap+`"
					c core.hooksPath "$HOME/hooks"
					c core.sshCommand "`+trap+`"
					c core.gitProxy "`+trap+`"
					c core.fsmonitor "`+trap+`"
					c core.pager "`+trap+`"
					c core.editor "`+trap+`"
					c gpg.program "`+trap+`"
					c commit.gpgSign true
					c push.gpgSign true
					c http.proxy `+evil.URL+`
					c http.sslVerify false
				done
				mkdir "$HOME/hooks"
				for hook in pre-push post-commit pre-commit reference-transaction; do
					cp "$HOME/trap" "$HOME/hooks/$hook"; cp "$HOME/trap" ".git/hooks/$hook"
				done
			`)
			_ = os.Remove(b.Home() + "/trapped") // the agent's own git has run it
			write(t, log, "")
			o := h.options("work/1")
			got := push.Push(t.Context(), b, o)
			if !got.Pushed || got.Error != "" || got.PRURL == "" {
				t.Errorf("got %+v", got)
			}
			if again := push.Push(t.Context(), b, o); again != got {
				t.Errorf("again: %+v, want %+v", again, got)
			}
			if tip := h.tip("work/1"); tip == "" || tip != got.Commit {
				t.Errorf("the server is at %q, want %s", tip, got.Commit)
			}
			if files := git(t, h.bare(), "ls-tree", "--name-only", "work/1"); files != "README\nmade\nmore" {
				t.Errorf("pushed %q", files)
			}
			evil.untouched(t)
			if text, err := os.ReadFile(b.Home() + "/trapped"); err == nil {
				t.Errorf("a program of the agent's ran: %s", text)
			}
			commands, err := os.ReadFile(log)
			for _, want := range []string{"git push --porcelain", "remote-http"} {
				if err != nil || !bytes.Contains(commands, []byte(want)) {
					t.Errorf("the log of command lines has no %q: %v\n%s", want, err, commands)
				}
			}
			for _, form := range tokenForms {
				if bytes.Contains(commands, []byte(form)) {
					t.Errorf("the token is in a command line:\n%s", commands)
				}
				for _, dir := range []string{b.Home(), b.WorkDir(), temp} {
					holds(t, dir, form)
				}
			}
			if left, err := filepath.Glob(temp + "/arbe-push-*"); err != nil || len(left) > 0 {
				t.Errorf("left on the host: %v, %v", left, err)
			}
			if left, err := filepath.Glob(b.Home() + "/.arbe/*.bundle"); err != nil || len(left) > 0 {
				t.Errorf("left in the box: %v, %v", left, err)
			}
		})
	}
}

// holds fails the test for each file below dir that holds text.
func holds(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			t.Errorf("the token is in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A redirect takes neither the token nor the commits to another host, whenever it comes.
func TestRedirect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		when   func(r *http.Request) bool
		status int
		reason string
	}{
		{"the first request", func(*http.Request) bool { return true }, 302, "redirected to another host"},
		{"git's requests", func(r *http.Request) bool { return r.UserAgent() != "git/arbe" }, 302, "302"},
		{"the push itself", func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack")
		}, 307, "307"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, evil := localHouse(t), newStranger(t)
			b := h.clone()
			run(t, b, "git commit --quiet --allow-empty -m work")
			real := h.Config.Handler
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tt.when(r) {
					http.Redirect(w, r, evil.URL+r.URL.String(), tt.status)
					return
				}
				real.ServeHTTP(w, r)
			}))
			defer front.Close()
			o := h.options("work/1")
			o.Remote.URL = front.URL + "/git/org/repo.git"
			if got := push.Push(t.Context(), b, o); got.Pushed || !strings.Contains(got.Error, tt.reason) {
				t.Errorf("got %+v", got)
			}
			evil.untouched(t)
			if h.tip("work/1") != "" {
				t.Error("the branch was pushed")
			}
		})
	}
}

// The token of GitHub is for no other server. A remote may be named by what stands on a thread, where agents write.
func TestOtherServer(t *testing.T) {
	t.Parallel()
	h := localHouse(t)
	b := h.clone()
	run(t, b, "git commit --quiet --allow-empty -m work")
	o := h.options("work/1")
	var err error
	o.Remote, err = push.ParseRemote(h.URL+"/git/org/repo.git", "https://github.example")
	if err != nil || o.Remote.Owner != "" {
		t.Fatalf("%+v, %v", o.Remote, err)
	}
	const want = "/git/org/repo.git: the server requires credentials, and GITHUB_TOKEN is for GITHUB_SERVER_URL only " +
		"(401)"
	if got := push.Push(t.Context(), b, o); got.Pushed || !strings.HasSuffix(got.Error, want) {
		t.Errorf("got %+v", got)
	}
	if _, err := push.Check(t.Context(), o); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("checked: %v", err)
	}
	open := newStranger(t) // it asks for credentials, and logs what it gets
	o.Remote.URL = open.URL
	push.Push(t.Context(), b, o)
	open.mu.Lock()
	defer open.mu.Unlock()
	for _, r := range open.seen {
		if strings.Contains(r, "Authorization") {
			t.Errorf("a stranger got %s", r)
		}
	}
	if len(open.seen) == 0 {
		t.Error("the remote was not asked")
	}
}

// A folder and a file URL are pushed to without a token, and have no pull request.
func TestLocalRemote(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	h := &house{local.New(t.TempDir()), g, g.bare()}
	b := h.clone()
	for _, address := range []string{g.bare(), "file://" + g.bare()} {
		run(t, b, "git commit --quiet --allow-empty -m work")
		remote, err := push.ParseRemote(address, "")
		if err != nil || remote.Owner != "" {
			t.Fatalf("%+v, %v", remote, err)
		}
		o := push.Options{Remote: remote, Branch: "work/1"}
		if _, err := push.Check(t.Context(), o); err != nil {
			t.Error(err)
		}
		got := push.Push(t.Context(), b, o)
		if want := (push.Outcome{Pushed: true, Branch: "work/1", Commit: g.tip("work/1")}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	o := push.Options{Remote: push.Remote{URL: g.bare() + "-none"}, Branch: "work/1"}
	got := push.Push(t.Context(), b, o)
	if got.Pushed || !strings.Contains(got.Error, "does not appear to be a git repository") {
		t.Errorf("got %+v", got)
	}
}

// A remote of ssh is pushed to with the user's keys and without the token.
func TestSSH(t *testing.T) {
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	write(t, bin+"/ssh", "#!/bin/sh\nfor last; do :; done\necho \"$@\" >>"+log+"\nenv >>"+log+
		"\nexec sh -c \"$last\"\n")
	if err := os.Chmod(bin+"/ssh", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	h := localHouse(t)
	b := h.clone()
	run(t, b, "git commit --quiet --allow-empty -m work")
	o := h.options("work/1")
	o.Remote = push.Remote{URL: "git@git.example:" + h.bare()}
	if got := push.Push(t.Context(), b, o); !got.Pushed || got.Error != "" || got.Commit != h.tip("work/1") {
		t.Errorf("got %+v", got)
	}
	said, err := os.ReadFile(log)
	if err != nil || !bytes.Contains(said, []byte("-o BatchMode=yes")) {
		t.Errorf("ssh was called with %s, %v", said, err)
	}
	for _, form := range tokenForms {
		if bytes.Contains(said, []byte(form)) {
			t.Error("ssh has the token")
		}
	}
}

// Of two hosts that push at once, both come to the same result.
func TestTwoHosts(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.clone()
		run(t, b, "git commit --quiet --allow-empty -m work; echo more >more")
		var got [2]push.Outcome
		var wait sync.WaitGroup
		for i := range got {
			wait.Go(func() { got[i] = push.Push(context.Background(), b, h.options("work/1")) })
		}
		wait.Wait()
		if got[0] != got[1] || got[0].PRURL == "" || got[0].Error != "" || len(h.pulls) != 1 {
			t.Errorf("got %+v and %d pull requests", got, len(h.pulls))
		}
	})
}
