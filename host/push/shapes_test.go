package push_test

import (
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/sandbox"
)

// TestShapes has the states in which an agent may leave the working directory: every other one, and TestFullShapes the
// rest.
func TestShapes(t *testing.T) { shapes(t, 0) }

func TestFullShapes(t *testing.T) { shapes(t, 1) }

// shapes plays the rows with an even number, or with an odd one.
func shapes(t *testing.T, odd int) {
	t.Parallel()
	const nothing = "nothing to push: the branch work/1 has no commit that the remote lacks"
	for row, tt := range []struct {
		name   string
		script string // the agent's; $REMOTE is a clone of the remote that is not in the box, to act as somebody else
		err    string // what is in the error; "" for none
		files  string // that the pushed branch has
		kept   bool   // the remote's branch stays as it is
	}{
		{
			name:   "commits and changes",
			script: "echo a >a; git add a; git commit -qm a; echo b >b; rm README",
			files:  "a b",
		},
		{name: "staged changes", script: "echo a >a; git add a; echo b >a", files: "README a"},
		{name: "ignored files", script: "echo '*.o' >.gitignore; echo x >x.o", files: ".gitignore README"},
		{name: "a nested folder is the current one", script: "mkdir sub; cd sub; echo a >a", files: "README sub"},
		{
			name:   "many commits",
			script: "for i in 1 2 3 4 5 6 7 8 9; do echo $i >a; git add a; git commit -qm $i; done",
			files:  "README a",
		},
		{
			name: "a merge",
			script: `
				git checkout -q --detach; echo a >a; git add a; git commit -qm a; git checkout -q work/1
				git merge -q --no-ff -m m HEAD@{1}
			`,
			files: "README a",
		},
		{name: "no commit, no change", err: nothing, kept: true},
		{name: "only ignored files", script: "echo '*' >.git/info/exclude; echo x >x", err: nothing, kept: true},
		{name: "trunk moved on meanwhile, no commit", script: "there trunk t", err: nothing, kept: true},
		{name: "trunk moved on meanwhile", script: "there trunk t; echo a >a", files: "README a"},
		{
			name:   "trunk was forced to another history",
			script: "there other o; git -C $REMOTE push -qf origin +other:trunk; echo a >a",
			files:  "README a",
		},
		{
			name:   "somebody pushed meanwhile",
			script: "there work/1 t; echo a >a",
			err:    "not a fast-forward: work/1 at the remote", kept: true,
		},
		{
			name: "the agent's own push",
			script: `
				echo a >a; git add a; git commit -qm a; git -C $REMOTE pull -q $PWD work/1
				git -C $REMOTE push -q origin HEAD:work/1; git update-ref refs/remotes/origin/work/1 HEAD
			`,
			files: "README a",
		},
		{
			name: "a remote-tracking branch that lies",
			script: `
				echo a >a; git add a; git commit -qm a; git update-ref refs/remotes/fork/x HEAD; echo b >b
				git add b; git commit -qm b
			`,
			files: "README a b",
		},
		{
			name:   "remote-tracking branches that all lie",
			script: "echo a >a; git add a; git commit -qm a; git update-ref refs/remotes/origin/trunk HEAD",
			files:  "README a",
		},
		{
			name: "no remote-tracking branch",
			script: `
				git remote remove origin
				git for-each-ref --format='delete %(refname)' refs/remotes | git update-ref --stdin
				echo a >a
			`,
			files: "README a",
		},
		{
			name:   "replaced objects",
			script: "echo a >a; git add a; git commit -qm a; git replace HEAD HEAD^",
			files:  "README a",
		},
		{name: "a new history", script: "rm -rf .git; git init -q -b work/1; echo a >a", files: "README a"},
		{
			name:   "the commit that the branch began at is amended",
			script: "git commit -q --amend -m amended; echo a >a",
			files:  "README a",
		},
		{
			name:   "detached HEAD without work",
			script: "echo a >a; git add a; git commit -qm a; git checkout -q --detach",
			files:  "README a",
		},
		{
			name:   "detached HEAD with a commit",
			script: "git checkout -q --detach; git commit -qm a --allow-empty",
			err:    "is on a detached HEAD, with work that the branch work/1 lacks", kept: true,
		},
		{
			name:   "another branch with changes",
			script: "git checkout -qb mine; echo a >a",
			err:    "is on the branch mine, with work that the branch work/1 lacks", kept: true,
		},
		{
			name:   "another branch with a commit",
			script: "git checkout -qb mine; git commit -qm a --allow-empty",
			err:    "is on the branch mine, with work", kept: true,
		},
		{
			name:   "a branch that was renamed",
			script: "git branch -m mine; git commit -qm a --allow-empty",
			err:    "the box has no branch work/1: its working directory is on the branch mine", kept: true,
		},
		{name: "unborn, empty", script: "rm -rf .git README; git init -q -b work/1", err: nothing, kept: true},
		{
			name:   "unborn, with files",
			script: "git checkout -q --orphan new; git branch -D work/1; git symbolic-ref HEAD refs/heads/work/1",
			files:  "README",
		},
		{
			name:   "no repository",
			script: "rm -rf .git",
			err:    "the box's working directory is not a git repository", kept: true,
		},
		{
			name:   "a broken repository",
			script: "rm .git/HEAD",
			err:    "the box's working directory is not a git repository", kept: true,
		},
		{
			name: "a missing object",
			script: `
				echo a >a; git add a; git commit -qm a; o=$(git rev-parse HEAD:a)
				rm -f .git/objects/$(echo $o | cut -c1-2)/*
			`,
			err: "pack the branch work/1 in the box: exit status", kept: true,
		},
		{
			name: "a conflict",
			script: `
				echo a >a; git add a; git commit -qm a; git checkout -qb x HEAD^; echo b >a; git add a
				git commit -qm b; git checkout -q work/1; git merge x || :
			`,
			err: "unresolved merge conflicts", kept: true,
		},
		{
			name: "an object that is not sound",
			script: `
				t=$(printf '100644 blob %s\t.git\n' "$(git rev-parse HEAD:README)" | git mktree)
				git update-ref refs/heads/work/1 $(git commit-tree -p HEAD -m x $t)
				git checkout -q --detach HEAD^
			`,
			err: "are damaged", kept: true,
		},
	} {
		if row%2 != odd {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := localHouse(t)
			b := h.clone()
			other := t.TempDir()
			git(t, other, "clone", "-q", h.bare(), ".")
			git(t, other, "config", "user.name", "other")
			git(t, other, "config", "user.email", "o@example")
			run(t, b, `REMOTE=`+other+`
				there() { # a branch, and a file that somebody else adds to it
					git -C $REMOTE checkout -q "$1" 2>/dev/null || git -C $REMOTE checkout -q -b "$1"
					echo other >$REMOTE/$2; git -C $REMOTE add $2; git -C $REMOTE commit -qm "$2"; git -C $REMOTE push -q origin "$1"
				}
				`+tt.script)
			before := h.tip("work/1")
			o := h.options("work/1")
			o.NoPR = true
			got := push.Push(t.Context(), b, o)
			if !strings.Contains(got.Error, tt.err) || (got.Error == "") != (tt.err == "") ||
				got.Pushed != (tt.err == "") {
				t.Fatalf("got %+v, want %q", got, tt.err)
			}
			if got.Nothing != (tt.err == nothing) {
				t.Errorf("nothing to push: %v", got.Nothing)
			}
			if tip := h.tip("work/1"); tt.kept && tip != before || !tt.kept && tip != got.Commit {
				t.Errorf("the remote is at %q, and was at %q", tip, before)
			}
			if tt.files != "" {
				if files := strings.ReplaceAll(git(t, h.bare(), "ls-tree", "--name-only", "work/1"), "\n",
					" "); files != tt.files {
					t.Errorf("pushed %q, want %q", files, tt.files)
				}
				git(t, h.bare(), "fsck", "--strict", "--no-dangling")
				if again := push.Push(t.Context(), b, o); again != got {
					t.Errorf("again: %+v, want %+v", again, got)
				}
			}
		})
	}
}

// A run that continues a branch of the remote pushes what it added, and loses no commit that others added.
func TestContinuesBranch(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.clone()
		if commit, err := push.Check(t.Context(), h.options("work/1")); err != nil || commit != "" {
			t.Errorf("before: %q, %v", commit, err)
		}
		for _, file := range []string{"one", "two", "three"} {
			run(t, b, "echo 1 >"+file+"; git add .; git commit -qm "+file+"; echo 2 >>"+file)
			u, err := push.CountUnsaved(t.Context(), b)
			if want := (push.Unsaved{Git: true, Commits: 1, Changes: 1}); err != nil || u != want || !u.Any() {
				t.Errorf("unsaved: %+v, %v", u, err)
			}
			got := push.Push(t.Context(), b, h.options("work/1"))
			head := run(t, b, "git rev-parse HEAD")
			if got.Error != "" || got.PRURL == "" || h.tip("work/1") != head || got.Commit != head {
				t.Fatalf("got %+v", got)
			}
			if u, err := push.CountUnsaved(t.Context(), b); err != nil || u != (push.Unsaved{Git: true}) || u.Any() {
				t.Errorf("unsaved after the push: %+v, %v", u, err)
			}
			commit, err := push.Check(t.Context(), h.options("work/1"))
			if err != nil || commit != got.Commit {
				t.Errorf("after: %q, %v", commit, err)
			}
		}
		if len(h.pulls) != 1 {
			t.Errorf("%d pull requests", len(h.pulls))
		}
		left := "arbe:arbe@localhost:make  it better:"
		if got := run(t, b, "git log -3 --format=%an:%ae:%s:%b"); got != left+"\nagent:a@example:three:\n"+left {
			t.Errorf("the box has %q", got)
		}
	})
}

// A box whose branch the remote has already begins there, so that its work can be pushed.
func TestExistingBranch(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		other := t.TempDir()
		git(t, other, "clone", "-q", h.bare(), ".")
		git(t, other, "checkout", "-q", "-b", "work/1")
		write(t, other+"/theirs", "theirs")
		commit(t, other, "theirs")
		git(t, other, "push", "-q", "origin", "work/1")
		b := h.clone()
		if u, err := push.CountUnsaved(t.Context(), b); err != nil || u.Any() {
			t.Errorf("unsaved in a new box: %+v, %v", u, err)
		}
		if got := push.Push(t.Context(), b, h.options("work/1")); got.Error != "" || got.Commit != h.tip("work/1") {
			t.Errorf("a push without work: %+v", got)
		}
		run(t, b, "echo mine >mine")
		got := push.Push(t.Context(), b, h.options("work/1"))
		if got.Error != "" || got.PRURL == "" || h.tip("work/1") != got.Commit {
			t.Errorf("got %+v", got)
		}
		if files := git(t, h.bare(), "ls-tree", "--name-only", "work/1"); files != "README\nmine\ntheirs" {
			t.Errorf("pushed %q", files)
		}
	})
}

func TestCountUnsaved(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		for script, want := range map[string]push.Unsaved{
			":": {Git: true},
			"echo '*.o' >.git/info/exclude; echo x >x.o; git config status.showUntrackedFiles " +
				"no": {Git: true},
			"echo x >x; mkdir d; echo y >d/y; echo z >d/z; rm README; git config status.showUntrackedFiles no":                 {Git: true, Changes: 3},
			"for i in 1 2; do git commit -qm $i --allow-empty; done; git checkout -q --detach; git commit -qm 3 --allow-empty": {Git: true, Commits: 3},
			"git checkout -qb x; git commit -qm x --allow-empty; git checkout -q work/1":                                       {Git: true, Commits: 1},
			"echo x >README; git stash -q":        {Git: true, Commits: 2},
			"rm -rf .git; git init -q":            {Git: true, Changes: 1},
			"rm -rf .git; git init -q; rm README": {Git: true},
			"rm -rf .git":                         {},
			"git config core.fsmonitor 'touch '$HOME'/ran; false'; echo x>x": {Git: true, Changes: 1},
		} {
			b := h.clone()
			run(t, b, script)
			if got, err := push.CountUnsaved(t.Context(), b); err != nil || got != want {
				t.Errorf("%s: %+v, %v, want %+v", script, got, err, want)
			}
			if _, err := os.Stat(b.Home() + "/ran"); err == nil {
				t.Errorf("%s: a program of the agent's ran", script)
			}
		}
		b := h.clone()
		run(t, b, "rm .git/HEAD")
		if got, err := push.CountUnsaved(t.Context(), b); err == nil {
			t.Errorf("a broken repository: %+v", got)
		}
		if got, err := push.CountUnsaved(t.Context(), broken{io.EOF}); err == nil {
			t.Errorf("a broken box: %+v", got)
		}
		if err := h.Destroy(t.Context(), b.Ref().ID); err != nil {
			t.Fatal(err)
		}
		if got, err := push.CountUnsaved(t.Context(), b); err == nil {
			t.Errorf("a box that is gone: %+v", got)
		}
	})
}

// A big push streams, and is refused beyond its limit.
func TestLargeBundle(t *testing.T) {
	// Each look at a command allocates, too: there must not be more of them on a slow machine.
	seldom := func(t *testing.T) *house { return daytonaAt(t, 200*time.Millisecond) }
	for name, house := range map[string]func(*testing.T) *house{"local": localHouse, "daytona": seldom} {
		t.Run(name, func(t *testing.T) {
			h := house(t)
			allocated := func(size string) uint64 {
				b := h.box(sandbox.Options{Repo: h.repo, Branch: "work/" + size, Token: token})
				run(t, b, "git config core.compression 0; head -c "+size+" /dev/urandom >big")
				o := h.options("work/" + size)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				got := push.Push(t.Context(), b, o)
				runtime.ReadMemStats(&after)
				if got.Error != "" {
					t.Errorf("%s: got %+v", size, got)
				}
				return after.TotalAlloc - before.TotalAlloc
			}
			small, big := allocated("1000"), allocated("50M")
			t.Logf("%d bytes allocated for 1000 bytes, %d for 50 MB", small, big)
			if big > small+25<<20 {
				t.Errorf("%d bytes allocated for 1000 bytes, and %d for 50 MB", small, big)
			}
			b := h.clone()
			run(t, b, "head -c 2M /dev/urandom >big")
			o := h.options("work/1")
			o.MaxBundle = 1 << 20
			got := push.Push(t.Context(), b, o)
			if got.Pushed || !strings.Contains(got.Error, "the commits take more than 1048576 bytes") {
				t.Errorf("got %+v", got)
			}
		})
	}
}
