package folder_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
)

// git runs git in a folder, with no configuration but the repository's.
func git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.org",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(t, dir, args...)
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return out
}

// TestGit: commits of the box come back; what would have the host's git run a command does not.
func TestGit(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		write(t, s.Path, "a", "1")
		sub := filepath.Join(t.TempDir(), "sub")
		write(t, sub, "s", "1")
		for _, dir := range []string{s.Path, sub} {
			mustGit(t, dir, "init", "-q", "-b", "main")
			mustGit(t, dir, "add", "-A")
			mustGit(t, dir, "commit", "-qm", "one")
		}
		mustGit(t, s.Path, "submodule", "add", "-q", sub, "sub")
		mustGit(t, s.Path, "commit", "-qm", "with a submodule")
		mustGit(t, s.Path, "worktree", "add", "-q", "-b", "side", "tree")
		s.copyIn(t)

		// Every way for an agent to have a command run by those who use git here later.
		ran := filepath.Join(t.TempDir(), "ran")
		command := filepath.Join(s.work(), "evil.sh")
		write(t, s.work(), "evil.sh", "#!/bin/sh\necho >>"+ran+"\n")
		must(t, os.Chmod(command, 0o755))
		config := "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = " + s.dir("evil.sh") + "\n"
		hook := "#!/bin/sh\necho >>" + ran + "\n"
		hooks := []string{"post-checkout", "post-commit", "pre-commit", "post-index-change"}
		mustGit(t, s.work(), "branch", "hooks/mine")
		mustGit(t, s.work(), "branch", "config")
		write(t, s.work(), "a", "2")
		mustGit(t, s.work(), "commit", "-qam", "by the agent")
		head := mustGit(t, s.work(), "rev-parse", "HEAD")
		mustGit(t, s.work(), "init", "-q", "nested")
		mustGit(t, s.work(), "init", "-q", "--bare", "bare")
		mustGit(t, s.work(), "init", "-q", "hidden")
		for _, dir := range []string{".git", "nested/.git", "bare", "hidden/.git", ".git/modules/sub"} {
			write(t, s.work(dir), "config", config, "config.worktree", config)
			for _, name := range hooks {
				write(t, s.work(dir), "hooks/"+name, hook)
				must(t, os.Chmod(s.work(dir, "hooks", name), 0o755))
			}
		}
		write(t, s.work(".git/worktrees/tree"), "config.worktree", config)
		write(t, s.work("bare"), "config", config+"\tbare = false\n\tworktree = "+s.dir("bare")+"\n")
		must(t, os.Rename(s.work("hidden/.git"), s.work("hidden/repository"))) // a folder of another name
		write(t, s.work("hidden"), ".git", "gitdir: repository\n")
		write(t, s.work("GIT"), ".GIT/config", config)
		mustGit(t, s.work(), "init", "-q", "common")
		write(t, s.work("common/.git"), "commondir", "../../hidden/repository\n")
		remove(t, s.work("tree/.git"))
		write(t, s.work("tree/.git"), "HEAD", "ref: refs/heads/x\n", "config", config)
		must(t, os.Symlink("../../hidden/repository/hooks", s.work("common/.git/hooks2")))
		before := mustGit(t, s.Path, "config", "--local", "--list")

		res := s.pull(t)
		if len(res.Conflicts) > 0 {
			t.Errorf("conflicts %v", res.Conflicts)
		}
		if out := mustGit(t, s.Path, "log", "--format=%H %s", "main", "-1"); out != head+" by the agent" {
			t.Errorf("the branch is at %s, want %s", out, head)
		}
		for _, dir := range []string{"", "sub", "tree", "nested", "bare", "hidden", "common", "GIT"} {
			for _, args := range [][]string{
				{"status"}, {"add", "-A"}, {"commit", "-qm", "x", "--allow-empty"}, {"checkout", "-q", "-b", "new-" + dir},
			} {
				out, err := git(t, s.dir(dir), args...)
				if _, is := os.Stat(ran); is == nil {
					t.Fatalf("git %v in %q ran a command of the box: %v\n%s", args, dir, err, out)
				}
			}
		}
		if after := mustGit(t, s.Path, "config", "--local", "--list"); after != before {
			t.Errorf("the configuration is\n%s\nwas\n%s", after, before)
		}
		for _, branch := range []string{"hooks/mine", "config"} {
			mustGit(t, s.Path, "rev-parse", "--verify", branch)
		}
		for _, path := range []string{
			".git/config", ".git/hooks", "bare/config", "bare/hooks", "hidden/.git", "tree/.git",
			"common/.git/commondir",
		} {
			if !slices.Contains(res.Skipped, path) {
				t.Errorf("%s is not reported in %v", path, res.Skipped)
			}
		}
	})
}

// TestGitGone: a repository that was removed in the box stays here, also where deletions are wanted.
func TestGitGone(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		s.Delete = true
		write(t, s.Path, "a", "1", "b", "1")
		mustGit(t, s.Path, "init", "-q", "-b", "main")
		mustGit(t, s.Path, "add", "-A")
		mustGit(t, s.Path, "commit", "-qm", "one")
		s.copyIn(t)
		remove(t, s.work(".git"))
		remove(t, s.work("b"))
		res := s.pull(t)
		out := mustGit(t, s.Path, "status", "--short")
		if out != "D b" || res.Deleted != 1 || !slices.Equal(res.Skipped, []string{".git"}) {
			t.Errorf("%+v, status %q", res, out)
		}
		if out := mustGit(t, s.Path, "fsck"); strings.Contains(out, "missing") {
			t.Error(out)
		}
	})
}

// TestGitPacked: a branch that was packed in the box is where the box has it, although nothing is deleted.
func TestGitPacked(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		write(t, s.Path, "a", "1")
		mustGit(t, s.Path, "init", "-q", "-b", "main")
		mustGit(t, s.Path, "add", "-A")
		mustGit(t, s.Path, "commit", "-qm", "one")
		for _, branch := range []string{"kept", "mine", "gone"} {
			mustGit(t, s.Path, "branch", branch)
		}
		s.copyIn(t)
		write(t, s.work(), "a", "2")
		mustGit(t, s.work(), "commit", "-qam", "two")
		mustGit(t, s.work(), "branch", "-D", "gone")
		mustGit(t, s.work(), "gc", "-q")
		head := mustGit(t, s.work(), "rev-parse", "HEAD")
		write(t, s.Path, "b", "mine")
		mustGit(t, s.Path, "branch", "-f", "mine", mustGit(t, s.Path, "commit-tree", "-m", "mine", "HEAD^{tree}"))
		mine := mustGit(t, s.Path, "rev-parse", "mine")
		res := s.pull(t)
		for ref, want := range map[string]string{"HEAD": head, "mine": mine, "gone": head + "~", "kept": head + "~"} {
			if got := mustGit(t, s.Path, "rev-parse", ref); got != mustGit(t, s.Path, "rev-parse", want) {
				t.Errorf("%s is %s, want %s", ref, got, want)
			}
		}
		if out := mustGit(t, s.Path, "status", "--short"); out != "?? b" || res.Deleted > 0 {
			t.Errorf("status %q, %+v", out, res)
		}
		if out := mustGit(t, s.Path, "fsck"); strings.Contains(out, "missing") {
			t.Error(out)
		}
	})
}
