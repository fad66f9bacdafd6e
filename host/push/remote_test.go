package push_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/push"
)

func TestParseRemote(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	if err := os.MkdirAll("org/folder", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		repo, server string
		want         push.Remote
		err          string
	}{
		{"org/repo", "", push.Remote{"https://github.com/org/repo.git", "org", "repo"}, ""},
		{"https://github.com/org/repo.git", "", push.Remote{"https://github.com/org/repo.git", "org", "repo"}, ""},
		{"https://www.github.com/org/repo", "", push.Remote{"https://github.com/org/repo.git", "org", "repo"}, ""},
		{"org/repo", "https://git.example/", push.Remote{"https://git.example/org/repo.git", "org", "repo"}, ""},
		{"http://127.0.0.1:1/git/org/repo.git", "http://127.0.0.1:1/git", push.Remote{"http://127.0.0.1:1/git/org/repo.git", "org", "repo"}, ""},
		{"http://127.0.0.1:12/org/repo.git", "http://127.0.0.1:1", push.Remote{URL: "http://127.0.0.1:12/org/repo.git"}, ""},
		{"https://git.example/group/sub/repo.git", "", push.Remote{URL: "https://git.example/group/sub/repo.git"}, ""},
		{"https://me@git.example/repo.git", "", push.Remote{URL: "https://git.example/repo.git"}, ""},
		{"org/folder", "", push.Remote{URL: filepath.Join(folder, "org/folder")}, ""},
		{folder, "", push.Remote{URL: folder}, ""},
		{"file:///x/y.git", "", push.Remote{URL: "file:///x/y.git"}, ""},
		{"ssh://git@git.example/x.git", "", push.Remote{URL: "ssh://git@git.example/x.git"}, ""},
		{"git@git.example:x.git", "", push.Remote{URL: "git@git.example:x.git"}, ""},
		{"https://me:secret@git.example/repo.git", "", push.Remote{}, "git.example holds a password: use GITHUB_TOKEN"},
		{"ext::sh -c x", "", push.Remote{}, "not a repository to push to"},
		{"ext::sh", "", push.Remote{}, "not a repository to push to"},
		{"git://git.example/x", "", push.Remote{}, "not a repository to push to"},
		{"--upload-pack=x", "", push.Remote{}, "not a repository to push to"},
		{"-x:y", "", push.Remote{}, "not a repository to push to"},
		{"", "", push.Remote{}, "not a repository to push to"},
		{"nothing", "", push.Remote{}, "not a repository to push to"},
	} {
		got, err := push.ParseRemote(tt.repo, tt.server)
		if got != tt.want || (err == nil) != (tt.err == "") || !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%q at %q: got %+v, %v, want %+v, %q", tt.repo, tt.server, got, err, tt.want, tt.err)
		}
		if again, err := push.ParseRemote(got.URL, tt.server); tt.err == "" && (again != got || err != nil) {
			t.Errorf("%q: its remote's address is read as %+v, %v, want %+v", tt.repo, again, err, got)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("the password is in %v", err)
		}
	}
}

// A push that can't work is refused before the run.
func TestCheck(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	repo := func(name string) func(*push.Options) {
		return func(o *push.Options) { o.Remote.URL = strings.Replace(o.Remote.URL, "repo.git", name, 1) }
	}
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-receive-pack-advertisement")
		fmt.Fprint(w, "001f# service=git-receive-pack\n00000")
	}))
	defer silent.Close()
	for name, tt := range map[string]struct {
		change func(*push.Options)
		err    string
	}{
		"a new branch":                    {func(*push.Options) {}, ""},
		"a moved repository":              {repo("old.git"), ""},
		"no token":                        {func(o *push.Options) { o.Token = "" }, "GITHUB_TOKEN required for push"},
		"no token for a pull request":     {func(o *push.Options) { o.Remote.URL, o.Token = g.bare(), "" }, "GITHUB_TOKEN required for push"},
		"a wrong token":                   {func(o *push.Options) { o.Token = "ghp_wrong" }, "the token was refused (401)"},
		"a token that may only read":      {repo("closed.git"), "the token may not push here (403)"},
		"no such repository":              {repo("none.git"), "no such repository"},
		"a page":                          {repo("page"), "the answer is not a git server's"},
		"an answer that is cut":           {func(o *push.Options) { o.Remote.URL = silent.URL }, "the list of refs is cut short"},
		"nobody there":                    {func(o *push.Options) { o.Remote.URL = "http://127.0.0.1:1/x" }, "refused"},
		"no folder":                       {func(o *push.Options) { o.Remote = push.Remote{URL: "/none"} }, "does not appear to be a git repository"},
		"no address":                      {func(o *push.Options) { o.Remote = push.Remote{} }, "the remote has no address"},
		"an address that is an option":    {func(o *push.Options) { o.Remote = push.Remote{URL: "--x"} }, "the remote has no address"},
		"no API":                          {func(o *push.Options) { o.BaseURL = "http://127.0.0.1:1" }, "refused"},
		"the default branch":              {func(o *push.Options) { o.Branch = "trunk" }, "trunk is the default branch"},
		"the default branch without a PR": {func(o *push.Options) { o.Branch, o.NoPR = "trunk", true }, ""},
		"a branch that git refuses":       {func(o *push.Options) { o.Branch = "a..b" }, `invalid branch name "a..b"`},
		"a branch that is an option":      {func(o *push.Options) { o.Branch = "--x y" }, "invalid branch name"},
		"no branch":                       {func(o *push.Options) { o.Branch = "" }, "invalid branch name"},
	} {
		o := g.options("work/1")
		tt.change(&o)
		commit, err := push.Check(t.Context(), o)
		if (err == nil) != (tt.err == "") || !strings.Contains(fmt.Sprint(err), tt.err) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
		if (commit != "") != (o.Branch == "trunk") {
			t.Errorf("%s: got %q, %v, want %q", name, commit, err, tt.err)
		}
		if strings.Contains(fmt.Sprint(err), token) || strings.Contains(fmt.Sprint(err), "ghp_") {
			t.Errorf("%s: the token is in %v", name, err)
		}
	}
	if refs := git(t, g.bare(), "for-each-ref", "--format=%(refname)"); refs != "refs/heads/trunk" {
		t.Errorf("a check changed the remote: %s", refs)
	}
}
