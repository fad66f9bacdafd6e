package folder_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// gitScene is a repository with the files a and b in one commit on main, and its copy.
type gitScene struct {
	*scene
	t *testing.T
}

func newGitScene(t *testing.T, init ...string) *gitScene {
	t.Helper()
	s := &gitScene{newScene(t, local.New(t.TempDir())), t}
	s.Name = "thread1"
	s.Impatient()
	write(t, s.Path, "a", "a\n", "b", "b\n")
	s.user(append([]string{"init", "-q", "-b", "main"}, init...)...)
	s.user("add", "-A")
	s.user("commit", "-qm", "one")
	return s
}

// user and agent run git, each in its copy.
func (s *gitScene) user(args ...string) string  { return s.git(s.Path, "user", args) }
func (s *gitScene) agent(args ...string) string { return s.git(s.work(), "agent", args) }

func (s *gitScene) git(dir, by string, args []string) string {
	s.t.Helper()
	out, ok := gitIn(s.t, dir, append([]string{
		"-c", "user.name=" + by, "-c", "protocol.file.allow=always", "-c", "commit.gpgSign=false",
	}, args...)...)
	if !ok {
		s.t.Fatalf("%s: git %v: %s", by, args, out)
	}
	return out
}

// commits has the agent write a file and commit it, and returns the commit.
func (s *gitScene) commits(name, content string) string {
	s.t.Helper()
	write(s.t, s.work(), name, content)
	s.agent("add", "-A")
	s.agent("commit", "-qm", "by the agent")
	return s.agent("rev-parse", "HEAD")
}

// is checks the output of the user's git.
func (s *gitScene) is(want string, args ...string) {
	s.t.Helper()
	if got := s.user(args...); got != want {
		s.t.Errorf("git %v: got\n%s\nwant\n%s", args, got, want)
	}
}

// stored returns what a sync has named, as "REF of OF: REASON".
func stored(res folder.Result) string {
	var all []string
	for _, n := range res.Stored {
		all = append(all, strings.TrimPrefix(n.Path+": ", ": ")+n.Ref+" of "+n.Of+": "+n.Why)
	}
	return strings.Join(all, "; ")
}

// follows pulls, and checks what could not follow; "" for nothing.
func (s *gitScene) follows(not string) {
	s.t.Helper()
	res := s.pull(s.t)
	if got := stored(res); got != not {
		s.t.Errorf("named %q, want %q", got, not)
	}
}

// The index that the user's git has written meanwhile keeps what the user staged, and the user's next commit keeps what
// the agent has committed.
func TestGitIndex(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(s *gitScene){
		"git add": func(s *gitScene) {
			write(t, s.Path, "mine", "m\n")
			s.user("add", "mine")
		},
		"an editor's git status": func(s *gitScene) {
			old := time.Now().Add(-time.Hour)
			must(t, os.Chtimes(s.dir("b"), old, old))
			s.user("status")
		},
		"git gc": func(s *gitScene) { s.user("gc", "-q", "--prune=now") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newGitScene(t)
			s.copyIn(t)
			look(s)
			staged := s.user("diff", "--cached", "--name-status")
			s.agent("mv", "b", "c")
			commit := s.commits("a", "by the agent\n")
			s.follows("")
			s.is(commit, "rev-parse", "main")
			s.is("refs/heads/main", "symbolic-ref", "HEAD")
			s.is(staged, "diff", "--cached", "--name-status")
			status := "?? b" // it stays: deletions are not copied
			if staged != "" {
				status = "A  mine\n?? b"
			}
			s.is(status, "status", "--porcelain")
			s.user("commit", "-qam", "next", "--allow-empty")
			s.is("by the agent", "show", "HEAD:a")
			s.is("b", "show", "HEAD:c")
			s.is("commit: next", "reflog", "-1", "--format=%gs")
			s.is("arbe: what the box has done", "reflog", "-1", "--skip=1", "--format=%gs")
		})
	}
}

// A file that has changed within the second of its entry is seen as changed after a sync, too.
func TestGitRacy(t *testing.T) {
	t.Parallel()
	s := newGitScene(t)
	s.user("config", "core.trustctime", "false")
	at := time.Now().Add(-time.Minute).Truncate(time.Second)
	must(t, os.Chtimes(s.dir("b"), at, at))
	s.user("status")
	s.copyIn(t)
	write(t, s.Path, "b", "c\n")
	must(t, os.Chtimes(s.dir("b"), at, at))
	must(t, os.Chtimes(s.dir(".git/index"), at, at))
	commit := s.commits("a", "by the agent\n")
	s.follows("")
	s.is(commit, "rev-parse", "HEAD")
	s.is("M b", "status", "--porcelain")
}

// Where HEAD can't follow, all of the user's stays, and the agent's commit has a name with which the user merges it.
func TestGitStays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, why string
		deed      func(s *gitScene)
	}{
		{"the user has committed", "main has moved here", func(s *gitScene) {
			write(t, s.Path, "mine", "m\n")
			s.user("add", "mine")
			s.user("commit", "-qm", "by the user")
		}},
		{"the user edits the same file", "a is another one here", func(s *gitScene) { write(t, s.Path, "a", "by the user\n") }},
		{"the user has staged the same file", "the index has another a here", func(s *gitScene) {
			write(t, s.Path, "a", "by the user\n")
			s.user("add", "a")
		}},
		{"the user is on another branch", "another branch is checked out here", func(s *gitScene) {
			s.user("checkout", "-qb", "mine")
		}},
		{"the user merges", "here is a merge in progress", func(s *gitScene) {
			s.user("checkout", "-qb", "other")
			write(t, s.Path, "other", "o\n")
			s.user("add", "-A")
			s.user("commit", "-qm", "other")
			s.user("checkout", "-q", "main")
			s.user("merge", "-q", "--no-ff", "--no-commit", "other")
		}},
		{"another git has the index", "here is another git command in progress", func(s *gitScene) {
			write(t, s.Path, ".git/index.lock", "")
		}},
		{"the base is not known", "what it was copied from is not known", func(s *gitScene) { s.Base.Repositories = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newGitScene(t)
			s.copyIn(t)
			tt.deed(s)
			was := take(t, s.Path)
			commit := s.commits("a", "by the agent\n")
			s.follows("refs/arbe/thread1 of HEAD: " + tt.why)
			now := take(t, s.Path)
			if now.head != was.head || now.commit != was.commit || fmt.Sprint(now.index) != fmt.Sprint(was.index) ||
				now.busy != was.busy {
				t.Errorf("was\n%v\nis\n%v", was, now)
			}
			s.is(commit, "rev-parse", "refs/arbe/thread1")
			if is := exists(s.dir(".git/index.lock")); is != strings.Contains(tt.name, "another git has") {
				t.Errorf("the other git's lock is there: %v", is)
			}
			_ = os.Remove(s.dir(".git/index.lock"))
			if tt.name == "the user has committed" {
				s.user("commit", "-qam", "with the agent's files")
				s.user("merge", "-q", "--no-edit", "refs/arbe/thread1")
				s.is("by the agent", "show", "HEAD:a")
				s.is("m", "show", "HEAD:mine")
			}
			s.follows("") // it is reported once
		})
	}
}

// A name that the box's next commit does not contain is not lost: it gets another one.
func TestGitNamesStay(t *testing.T) {
	t.Parallel()
	s := newGitScene(t)
	s.copyIn(t)
	s.user("commit", "-q", "--allow-empty", "-m", "by the user")
	first := s.commits("a", "first\n")
	s.follows("refs/arbe/thread1 of HEAD: main has moved here")
	s.agent("commit", "-q", "--amend", "-m", "again")
	second := s.agent("rev-parse", "HEAD")
	s.follows("refs/arbe/thread1.refs/was/" + first[:12] + " of refs/arbe/thread1: the box has another commit now; " +
		"refs/arbe/thread1 of HEAD: main has moved here")
	s.is(second, "rev-parse", "refs/arbe/thread1")
	s.is(first, "rev-parse", "refs/arbe/thread1.refs/was/"+first[:12])
}

// Other refs follow, each for itself. A stash entry, and a branch that the user has moved, deleted or checked out
// elsewhere, get a name.
func TestGitRefs(t *testing.T) {
	t.Parallel()
	s := newGitScene(t)
	for _, branch := range []string{"moved", "deleted", "kept", "ahead", "linked"} {
		s.user("branch", branch)
	}
	s.copyIn(t)
	s.user("worktree", "add", "-q", filepath.Join(t.TempDir(), "linked"), "linked")
	s.user("branch", "-D", "deleted")
	s.user("branch", "x")
	s.user("branch", "-f", "moved", s.user("commit-tree", "-m", "by the user", "HEAD^{tree}"))
	mine := s.user("rev-parse", "moved")
	commit := s.commits("a", "by the agent\n")
	for _, branch := range []string{"moved", "deleted", "ahead", "linked", "new", "x/y"} {
		s.agent("branch", "-f", branch)
	}
	s.agent("branch", "-D", "kept")
	s.agent("tag", "-am", "a tag", "v1")
	write(t, s.work(), "b", "stashed\n")
	s.agent("stash", "push", "-q")
	stash := s.agent("rev-parse", "stash")[:12]
	s.agent("notes", "add", "-m", "note")
	const prefix = "refs/arbe/thread1.refs/"
	s.follows(prefix + "heads/deleted of refs/heads/deleted: deleted was deleted here; " +
		prefix + "heads/linked of refs/heads/linked: linked is checked out here; " +
		prefix + "heads/moved of refs/heads/moved: moved has moved here; " +
		prefix + "stash/" + stash + " of stash: entries of a stash are not merged; " +
		prefix + "heads/x/y of refs/heads/x/y: git refuses to move it: update_ref failed for ref 'refs/heads/x/y': " +
		"cannot lock ref 'refs/heads/x/y': " +
		"'refs/heads/x' exists; cannot create 'refs/heads/x/y'")
	for ref, want := range map[string]string{
		"main": commit, "ahead": commit, "new": commit, "v1^{}": commit, "moved": mine, "kept": commit + "~",
		"linked": commit + "~", "x": commit + "~", prefix + "heads/x/y": commit,
	} {
		s.is(s.user("rev-parse", want), "rev-parse", ref)
	}
	s.is("note", "notes", "show")
	s.is("", "stash", "list")
}

// What else a repository can be.
func TestGitKinds(t *testing.T) {
	t.Parallel()
	t.Run("without a commit", func(t *testing.T) {
		t.Parallel()
		s := &gitScene{newScene(t, local.New(t.TempDir())), t}
		s.Name = "thread1"
		s.user("init", "-q", "-b", "main")
		s.copyIn(t)
		write(t, s.Path, "mine", "m\n")
		s.user("add", "mine")
		commit := s.commits("a", "a\n")
		s.follows("")
		s.is(commit, "rev-parse", "main")
		s.is("A  mine", "status", "--porcelain")
	})
	t.Run("of SHA-256", func(t *testing.T) {
		t.Parallel()
		s := newGitScene(t, "--object-format=sha256")
		s.copyIn(t)
		s.user("branch", "mine")
		s.agent("rm", "-q", "b")
		s.agent("branch", "topic")
		commit := s.commits("a", "by the agent\n")
		s.follows("")
		s.is(commit, "rev-parse", "main")
		s.is("?? b", "status", "--porcelain")
	})
	t.Run("without a branch", func(t *testing.T) {
		t.Parallel()
		s := newGitScene(t)
		s.user("checkout", "-q", "--detach")
		s.copyIn(t)
		commit := s.commits("a", "by the agent\n")
		s.follows("")
		s.is(commit, "rev-parse", "HEAD")
		s.is(commit+"~", "rev-parse", "--symbolic", commit+"~")
		s.agent("checkout", "-qb", "topic")
		s.follows("")
		s.is("refs/heads/topic", "symbolic-ref", "HEAD")
	})
	t.Run("shallow", func(t *testing.T) {
		t.Parallel()
		s := newGitScene(t)
		s.user("commit", "-q", "--allow-empty", "-m", "two")
		from := "file://" + s.Path
		s.Path = filepath.Join(t.TempDir(), "shallow")
		if out, ok := gitIn(t, filepath.Dir(s.Path), "clone", "-q", "--depth=1", from, s.Path); !ok {
			t.Fatal(out)
		}
		s.copyIn(t)
		commit := s.commits("a", "by the agent\n")
		s.follows("")
		s.is(commit, "rev-parse", "HEAD")
		s.is("2", "rev-list", "--count", "HEAD")
	})
	t.Run("with a merge that the agent ends", func(t *testing.T) {
		t.Parallel()
		s := newGitScene(t)
		s.user("checkout", "-qb", "other")
		write(t, s.Path, "a", "other\n")
		s.user("commit", "-qam", "other")
		s.user("checkout", "-q", "main")
		write(t, s.Path, "a", "main\n")
		s.user("commit", "-qam", "main")
		if out, ok := gitIn(t, s.Path, "merge", "other"); ok {
			t.Fatal(out)
		}
		s.copyIn(t)
		commit := s.commits("a", "both\n")
		s.follows("refs/arbe/thread1 of HEAD: here is a merge in progress")
		s.is(commit, "rev-parse", "refs/arbe/thread1")
		s.user("commit", "-qam", "merged") // with the file as the agent has it
		s.is("both", "show", "HEAD:a")
		s.is(s.user("rev-parse", "other"), "rev-parse", "HEAD^2")
	})
	t.Run("left out", func(t *testing.T) {
		t.Parallel()
		s := newGitScene(t)
		s.Exclude = []string{".git"}
		s.copyIn(t)
		was := take(t, s.Path)
		s.agent("init", "-q")
		s.commits("a", "by the agent\n")
		s.follows("")
		if now := take(t, s.Path); now.commit != was.commit || fmt.Sprint(now.refs) != fmt.Sprint(was.refs) {
			t.Errorf("was %v, is %v", was, now)
		}
	})
}

// A submodule is merged before the repository that names its commit. That one stays where the submodule does.
func TestGitSubmodule(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{true, false} {
		t.Run(fmt.Sprint("it follows: ", moves), func(t *testing.T) {
			t.Parallel()
			s := newGitScene(t)
			library := newGitScene(t)
			s.user("submodule", "add", "-q", library.Path, "sub")
			s.user("commit", "-qm", "with a submodule")
			s.copyIn(t)
			in := func(dir, by string, args ...string) string { return s.git(dir, by, args) }
			write(t, s.work("sub"), "a", "by the agent\n")
			in(s.work("sub"), "agent", "commit", "-qam", "by the agent")
			inner := in(s.work("sub"), "agent", "rev-parse", "HEAD")
			s.agent("commit", "-qam", "by the agent")
			outer := s.agent("rev-parse", "HEAD")
			if moves {
				s.follows("")
				s.is("", "status", "--porcelain")
				s.is(outer, "rev-parse", "HEAD")
				if got := in(s.dir("sub"), "user", "rev-parse", "HEAD"); got != inner {
					t.Errorf("the submodule is at %s, want %s", got, inner)
				}
				return
			}
			in(s.dir("sub"), "user", "commit", "-q", "--allow-empty", "-m", "by the user")
			mine := in(s.dir("sub"), "user", "rev-parse", "HEAD")
			s.follows("sub: refs/arbe/thread1 of HEAD: main has moved here; " +
				"refs/arbe/thread1 of HEAD: sub is another one here")
			if got := in(s.dir("sub"), "user", "rev-parse", "HEAD"); got != mine {
				t.Errorf("the submodule is at %s, want %s", got, mine)
			}
		})
	}
}

// A repository that the agent makes comes with its files, and from then on as any other. The objects of an extension
// come as files.
func TestGitNew(t *testing.T) {
	t.Parallel()
	s := newGitScene(t)
	s.copyIn(t)
	s.agent("init", "-q", "-b", "main", "new")
	in := func(dir, by string, args ...string) string { return s.git(dir, by, args) }
	commit := func() string {
		in(s.work("new"), "agent", "add", "-A")
		in(s.work("new"), "agent", "commit", "-qm", "by the agent")
		return in(s.work("new"), "agent", "rev-parse", "HEAD")
	}
	write(t, s.work("new"), "x", "1\n")
	commit()
	write(t, s.work(".git/lfs"), "objects/ab/cd/abcd", "large", "tmp/x", "", "cache/locks", "")
	s.follows("")
	write(t, s.dir("new"), "mine", "m\n")
	in(s.dir("new"), "user", "add", "mine")
	write(t, s.work("new"), "x", "2\n")
	second := commit()
	s.follows("")
	if got := in(s.dir("new"), "user", "rev-parse", "main"); got != second {
		t.Errorf("main is %s, want %s", got, second)
	}
	if got := in(s.dir("new"), "user", "status", "--porcelain"); got != "A  mine" {
		t.Errorf("status %q", got)
	}
	var lfs []string
	must(t, filepath.WalkDir(s.dir(".git/lfs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(s.dir(".git/lfs"), path)
			lfs = append(lfs, rel)
		}
		return err
	}))
	if !slices.Equal(lfs, []string{"objects/ab/cd/abcd"}) {
		t.Errorf("of git lfs came %v", lfs)
	}
}

// A repository of the box that can't be read or merged is an error, each time: its commits are in the box
// alone.
func TestGitUnread(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		deed func(s *gitScene, box *meddler)
		want string
	}{
		"the box has no git": {func(_ *gitScene, box *meddler) {
			box.exec = func(_ int, c *sandbox.Command) error {
				for i := range c.Argv {
					c.Argv[i] = strings.ReplaceAll(c.Argv[i], "command -v git", "command -v no-such-git")
				}
				return nil
			}
		}, "the box's repository . can't be read: git is missing in the box"},
		"it was removed here": {func(s *gitScene, _ *meddler) {
			remove(t, s.dir(".git"))
		}, "the repository . was removed here: the box's commits stay in the box"},
		"it is damaged here": {func(s *gitScene, _ *meddler) {
			write(t, s.Path, ".git/HEAD", "nonsense\n")
		}, "git rev-parse: exit status 128: fatal: not a git repository"},
		"what comes is no good": {func(s *gitScene, _ *meddler) {
			blob, err := hex.DecodeString(s.agent("hash-object", "-w", "a"))
			must(t, err)
			tree := filepath.Join(t.TempDir(), "tree") // with a file .git
			must(t, os.WriteFile(tree, append([]byte("100644 .git\x00"), blob...), 0o600))
			bad := s.agent("hash-object", "-t", "tree", "-w", "--literally", tree)
			s.agent("branch", "bad", s.agent("commit-tree", "-m", "bad", bad))
		}, "the box's commits are damaged: "},
		"it is damaged in the box": {func(s *gitScene, _ *meddler) {
			write(t, s.work(), ".git/HEAD", "nonsense\n")
		}, "the box's repository . can't be read: fatal: not a git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newGitScene(t)
			s.copyIn(t)
			s.commits("a", "by the agent\n")
			box := &meddler{Sandbox: s.box}
			tt.deed(s, box)
			for range 2 {
				res, err := s.Pull(context.Background(), box)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %s", err, tt.want)
				}
				s.Base = res.Base
			}
			if b, err := os.ReadFile(s.dir("a")); err != nil || string(b) != "by the agent\n" {
				t.Errorf("the file did not come: %q, %v", b, err)
			}
		})
	}
}

// The user's configuration may name programs and files of the working tree, which the agent writes: a sync runs none of
// them.
func TestGitRunsNothing(t *testing.T) {
	t.Parallel()
	s := newGitScene(t)
	ran := filepath.Join(t.TempDir(), "ran")
	s.user("config", "core.hooksPath", s.dir(".hooks"))
	s.user("config", "include.path", "../.gitconfig")
	write(t, s.Path, ".hooks/README", "", ".gitconfig", "", ".gitattributes", "* filter=evil\n")
	s.user("add", "-A")
	s.user("commit", "-qm", "two")
	s.copyIn(t)
	commit := s.commits("a", "by the agent\n")
	s.agent("branch", "topic")
	command := s.dir(".hooks/post-commit")
	for _, hook := range []string{"reference-transaction", "post-index-change", "post-checkout", "post-commit"} {
		write(t, s.work(), ".hooks/"+hook, "#!/bin/sh\necho \"$0\" >>"+ran+"\n")
		must(t, os.Chmod(s.work(".hooks", hook), 0o755))
	}
	write(t, s.work(), ".gitconfig", "[core]\n\tfsmonitor = "+command+"\n\tpager = "+command+"\n\teditor = "+command+
		"\n\talternateRefsCommand = "+command+"\n\tsshCommand = "+command+"\n[gpg]\n\tprogram = "+command+
		"\n[log]\n\tshowSignature = true\n[diff]\n\texternal = "+command+"\n[filter \"evil\"]\n\tclean = "+command+
		"\n\tsmudge = "+command+"\n\tprocess = "+command+"\n")
	_, err := s.Pull(t.Context(), s.box)
	if _, is := os.Stat(ran); is == nil {
		b, _ := os.ReadFile(ran)
		t.Errorf("the sync ran %s: %v", b, err)
	}
	if head, ok := gitIn(t, s.Path, "-c", "core.fsmonitor=false", "rev-parse", "HEAD"); err != nil || head != commit {
		t.Errorf("%v, HEAD is %s, %v", err, head, ok)
	}
	if gitIn(t, s.Path, "status"); !exists(ran) {
		t.Error("the user's own git runs none of it, either: the test is idle")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestGitBoxFaults has each call to the box fail, or bring something cut. The repository stays as it is.
func TestGitBoxFaults(t *testing.T) {
	t.Parallel()
	s := newGitScene(t)
	s.copyIn(t)
	commit := s.commits("a", "by the agent\n")
	before := take(t, s.Path)
	away := errors.New("the box is away")
	calls := 0
	for k := 1; ; k++ {
		cut := false
		box := &meddler{
			Sandbox: s.box,
			exec: func(n int, _ *sandbox.Command) error {
				if n == k {
					return away
				}
				return nil
			},
			send: func(n int) error {
				if n == k {
					return away
				}
				return nil
			},
			fetch: func(n int, data []byte) ([]byte, error) {
				if n == k {
					cut = true
					return data[:len(data)/2], nil
				}
				return data, nil
			},
		}
		res, err := s.Pull(t.Context(), box)
		if calls = box.n; k >= calls { // the last one tidies up
			s.Base = res.Base
			break
		}
		if now := take(t, s.Path); err == nil || !now.equal(before) || len(res.Stored) > 0 {
			t.Fatalf("call %d (cut: %v): %v, %v", k, cut, err, now)
		}
		s.user("repack", "-adq") // without what has come
	}
	if calls < 12 {
		t.Errorf("a sync makes %d calls only", calls)
	}
	s.is(commit, "rev-parse", "HEAD")
}
