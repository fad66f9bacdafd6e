package fakedaytona_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGit(t *testing.T) {
	t.Parallel()
	const password = "git-password-0002"
	remote, repo := gitServer(t, password)
	git(t, repo, "branch", "other", "main")
	c := newClient(t)
	_, url := c.box()
	home := c.s.Boxes()[0].Home
	type m = map[string]any
	with := func(q m) m {
		q["username"], q["password"] = "git", password
		return q
	}
	step := func(name, request string, q any, status int, want string) {
		t.Helper()
		method, path, _ := strings.Cut(request, " ")
		if a := c.do(method, url+path, q); a.status != status || !strings.Contains(a.body, want) ||
			want == "" && a.body != "" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	clone := func(url, path, branch string) m { return with(m{"url": url, "path": path, "branch": branch}) }

	step("no password", "POST /git/clone", m{"url": remote, "path": "r"}, 401, `"statusCode":401`)
	step(
		"wrong password",
		"POST /git/clone",
		m{"url": remote, "path": "r", "username": "git", "password": "x"},
		401,
		`"statusCode":401`,
	)
	step(
		"no such repository",
		"POST /git/clone",
		clone(strings.Replace(remote, "repo", "none", 1), "r", ""),
		404,
		"not found",
	)
	step("no such branch", "POST /git/clone", clone(remote, "r", "none"), 500, `"statusCode":500`)
	step("a path", "POST /git/clone", clone(repo, "r", ""), 500, "waitid: no child processes")
	step("a file", "POST /git/clone", clone("file://"+repo, "r", ""), 500, "waitid: no child processes")
	step("no path", "POST /git/clone", m{"url": remote}, 400, "path")
	step("this machine", "POST /git/clone", clone(remote, "/etc/none", ""), 403, "outside")
	if _, err := os.Stat(filepath.Join(home, "r")); err == nil {
		t.Error("a clone that failed left something")
	}
	step("clone", "POST /git/clone", clone(remote, "r", ""), 200, "")
	step("again", "POST /git/clone", clone(remote, "r", ""), 409, "already exists")
	step("a branch", "POST /git/clone", clone(remote, "o", "other"), 200, "")

	// Without a branch the clone follows the remote's HEAD alone.
	dir := filepath.Join(home, "r")
	for file, want := range map[string]string{
		"r": "+HEAD:refs/remotes/origin/HEAD",
		"o": "+refs/heads/other:refs/remotes/origin/other",
	} {
		if got := strings.TrimSpace(git(t, filepath.Join(home, file), "config", "--get-all",
			"remote.origin.fetch")); got != want {
			t.Errorf("%s fetches %s", file, got)
		}
	}
	if got := git(t, dir, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main\nrefs/remotes/origin/HEAD\n" {
		t.Errorf("refs: %s", got)
	}
	step(
		"status",
		"GET /git/status?path=r",
		nil,
		200,
		`{"ahead":0,"behind":0,"branchPublished":false,"currentBranch":"main","fileStatus":[]}`,
	)
	step("status of a branch", "GET /git/status?path=o", nil, 200, `"branchPublished":true`)
	step("new branch", "POST /git/branches", m{"path": "r", "name": "work"}, 201, "")
	step("check it out", "POST /git/checkout", m{"path": "r", "branch": "work"}, 200, "")
	step("branches", "GET /git/branches?path=r", nil, 200, `{"branches":["main","work"]}`)
	step("check out none", "POST /git/checkout", m{"path": "r", "branch": "none"}, 500, `"statusCode":500`)

	write("r/README", "changed\n")
	write("r/new", "new\n")
	write("r/added", "added\n")
	step("add", "POST /git/add", m{"path": "r", "files": []string{"added"}}, 200, "")
	status := c.do("GET", url+"/git/status?path=r", nil)
	want := []any{
		m{"name": "README", "extra": "", "staging": "Unmodified", "worktree": "Modified"},
		m{"name": "added", "extra": "", "staging": "Added", "worktree": "Unmodified"},
		m{"name": "new", "extra": "", "staging": "Untracked", "worktree": "Untracked"},
	}
	got, _ := status.json["fileStatus"].([]any)
	if len(got) == 3 { // git lists untracked files last
		got[1], got[2] = byName(got, "added"), byName(got, "new")
	}
	if !cmp.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	commit := func(more m) m {
		q := m{"path": "r", "message": "a message\n\nof lines", "author": "Ann", "email": "ann@example.org"}
		for k, v := range more {
			q[k] = v
		}
		return q
	}
	step("add all", "POST /git/add", m{"path": "r", "files": []string{"."}}, 200, "")
	step("no author", "POST /git/commit", commit(m{"author": ""}), 400, "author")
	step("commit", "POST /git/commit", commit(nil), 200, `{"hash":"`)
	step("commit nothing", "POST /git/commit", commit(nil), 500, `"statusCode":500`)
	step("commit nothing, on purpose", "POST /git/commit", commit(m{"allow_empty": true}), 200, `{"hash":"`)
	step("push without a password", "POST /git/push", m{"path": "r"}, 401, `"statusCode":401`)
	step("push", "POST /git/push", with(m{"path": "r"}), 200, "")
	if got, want := git(t, repo, "rev-parse", "work"), git(t, dir, "rev-parse", "HEAD"); got != want {
		t.Errorf("pushed %s, want %s", got, want)
	}
	step(
		"published is what the remote's branch is known of",
		"GET /git/status?path=r",
		nil,
		200,
		`"branchPublished":false`,
	)
	step("history", "GET /git/history?path=r", nil, 200, `"message":"a message\n\nof lines\n"`)

	git(t, repo, "update-ref", "refs/heads/other", "refs/heads/work")
	step("pull without a password", "POST /git/pull", m{"path": "o"}, 401, `"statusCode":401`)
	step("pull", "POST /git/pull", with(m{"path": "o"}), 200, "")
	if b, err := os.ReadFile(filepath.Join(home, "o", "new")); err != nil || string(b) != "new\n" {
		t.Errorf("pulled %q, %v", b, err)
	}
	step("no repository", "GET /git/status?path=.", nil, 404, "repository does not exist")
	c.run(url, "git init -q unborn; git init -q r/nested; echo inner >r/nested/file; git -C r/nested add .;"+
		"git -C r/nested -c user.name=n -c user.email=e commit -qm inner")
	step("an unborn branch", "GET /git/status?path=unborn", nil, 404, "not found: reference not found")
	step("push without a remote", "POST /git/push", with(m{"path": "unborn"}), 404, "remote not found")
	step("add a repository in it", "POST /git/add", m{"path": "r", "files": []string{"."}}, 200, "")
	step("commit it", "POST /git/commit", commit(nil), 200, `{"hash":"`)
	if got := git(t, dir, "ls-tree", "-r", "--name-only", "HEAD"); !strings.Contains(got, "nested/file\n") {
		t.Errorf("committed %s", got)
	}
	git(t, dir, "reset", "-q", "--hard", "HEAD~2")
	git(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "another way")
	step("push what is behind", "POST /git/push", with(m{"path": "r"}), 500, "rejected")
	git(t, dir, "checkout", "-q", "--detach")
	step("push from no branch", "POST /git/push", with(m{"path": "r"}), 500, "funny refname")

	if a := c.run(url, "grep -r "+password+" . || echo none"); a.str("result") != "none\n" {
		t.Errorf("the password is in the box: %s", a.body)
	}
}

func byName(list []any, name string) any {
	for _, v := range list {
		if m, ok := v.(map[string]any); ok && m["name"] == name {
			return m
		}
	}
	return nil
}
