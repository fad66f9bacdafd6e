package sandbox_test

import (
	"os/exec"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
)

func TestShellQuote(t *testing.T) {
	for _, test := range []struct {
		argv []string
		want string
	}{
		{[]string{"echo", "hello"}, `'echo' 'hello'`},
		{[]string{"echo", "it's"}, `'echo' 'it'\''s'`},
		{[]string{"echo", `say "hi"`}, `'echo' 'say "hi"'`},
		{[]string{"git", "commit", "-m", "fix: the bug"}, `'git' 'commit' '-m' 'fix: the bug'`},
		{[]string{"git", "commit", "-m", `it's a "test"`}, `'git' 'commit' '-m' 'it'\''s a "test"'`},
		{[]string{"echo", "`whoami` $HOME"}, "'echo' '`whoami` $HOME'"},
		{[]string{"echo", ""}, `'echo' ''`},
	} {
		if got, err := sandbox.ShellQuote(test.argv); err != nil || got != test.want {
			t.Errorf("%q: got %s, %v, want %s", test.argv, got, err, test.want)
		}
	}
	if _, err := sandbox.ShellQuote(nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("empty argv: %v", err)
	}
	if _, err := sandbox.ShellQuote([]string{"a\x00b"}); err == nil {
		t.Error("a zero byte was quoted")
	}
}

// FuzzShellQuote holds what the shell makes of the quoted words against the words.
func FuzzShellQuote(f *testing.F) {
	for _, s := range []string{"", "'", "''", `\`, "a b", "$(id)", "`id`", "x\ny", "\n", "é", "\xff", "!!", "~", "*", "-n", "a'\\''b"} {
		f.Add(s, "second")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		line, err := sandbox.ShellQuote([]string{"printf", `%s\0`, a, b})
		if err != nil {
			if !strings.ContainsRune(a+b, 0) {
				t.Error(err)
			}
			return
		}
		out, err := exec.Command("sh", "-c", line).Output()
		if err != nil || string(out) != a+"\x00"+b+"\x00" {
			t.Errorf("%q and %q came as %q, %v", a, b, out, err)
		}
	})
}

func TestParseRepo(t *testing.T) {
	for _, good := range []string{
		"acme/widgets", "acme/widgets.git", "https://github.com/acme/widgets", "https://github.com/acme/widgets.git",
		"https://github.com/acme/widgets/", "https://GitHub.com/acme/widgets",
	} {
		if owner, name, err := sandbox.ParseRepo(good, ""); owner != "acme" || name != "widgets" || err != nil {
			t.Errorf("%s: %s, %s, %v", good, owner, name, err)
		}
	}
	for _, bad := range []string{
		"", "widgets", ".", "./my-project", "../my-project", "/Users/x/repo", "~/repo", "a/b/c", "acme/", "/widgets",
		"acme/..", "-x/y", "a b/c", "a/b\n",
		"https://gitlab.com/acme/widgets", "https://github.com.evil.org/acme/widgets", "http://github.com/acme/widgets",
		"https://github.com/acme",
		"https://github.com/acme/widgets/tree/main", "https://user:secret@github.com/acme/widgets",
		"git@github.com:acme/widgets.git", "ssh://git@github.com/acme/widgets",
	} {
		owner, name, err := sandbox.ParseRepo(bad, "")
		if err == nil {
			t.Errorf("%q: %s, %s", bad, owner, name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	const own = "https://Git.example.org/enterprise/"
	for repo, good := range map[string]bool{
		"acme/widgets": true, "https://git.example.org/enterprise/acme/widgets.git": true,
		"https://github.com/acme/widgets": false, "https://git.example.org/acme/widgets": false,
		"https://git.example.org.evil.org/enterprise/acme/widgets": false,
		"https://a@git.example.org/enterprise/acme/widgets":        false,
	} {
		owner, name, err := sandbox.ParseRepo(repo, own)
		if is := owner == "acme" && name == "widgets" && err == nil; is != good {
			t.Errorf("%s: %s, %s, %v", repo, owner, name, err)
		}
	}
}
