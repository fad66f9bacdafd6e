package sandbox_test

import (
	"os"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
)

// TestExistingBranch: a branch that the remote has is where the box begins, so that its push is not rejected.
func TestExistingBranch(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		o := sandbox.Options{
			Repo: strings.Replace(h.repo, "org/repo", "org/private", 1), Branch: "arbe/work",
			Token: token,
		}
		bare := h.repos.bare("private")
		work := func(file string) string {
			b := h.create(t, o)
			if err := os.WriteFile(b.WorkDir()+"/"+file, []byte(file), 0o644); err != nil {
				t.Fatal(err)
			}
			commit, err := b.Snapshot(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			git(t, b.WorkDir(), "push", "-q", bare, o.Branch)
			return commit
		}
		// A branch whose name ends in the other's is another one.
		git(t, bare, "branch", "a/refs/heads/arbe/work", "trunk")
		first := work("one")
		git(t, bare, "update-ref", "refs/heads/trunk-2", "trunk")
		second := work("two")
		if got := git(t, bare, "rev-parse", "arbe/work^"); got != first {
			t.Errorf("the second box began at %s, want %s", got, first)
		}
		again := h.create(t, o)
		if got := git(t, again.WorkDir(), "rev-parse", "HEAD"); got != second {
			t.Errorf("the third box began at %s, want %s", got, second)
		}
		if got := git(t, again.WorkDir(), "symbolic-ref", "--short", "HEAD"); got != o.Branch {
			t.Errorf("the branch is %s", got)
		}
		o.Branch = "arbe/new"
		b := h.create(t, o)
		if got, want := git(t, b.WorkDir(), "rev-parse", "HEAD"), git(t, bare, "rev-parse", "trunk"); got != want {
			t.Errorf("a new branch began at %s, want %s", got, want)
		}
	})
}

// TestResources: a box gets what it was ordered with. Resources without an image are refused before anything is sent.
func TestResources(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	r := sandbox.Resources{CPU: 2, Memory: 4, Disk: 8}
	h.create(t, sandbox.Options{Resources: r, Image: "node:22-bookworm"})
	if box := h.fake.Boxes()[0]; box.CPU != 2 || box.Memory != 4 || box.Disk != 8 {
		t.Errorf("%+v", box)
	}
	before := h.asked()
	for _, o := range []sandbox.Options{
		{Resources: r}, {Resources: r, Snapshot: "daytonaio/sandbox:0.8.0"}, {Resources: sandbox.Resources{CPU: -1}},
	} {
		if _, err := h.Create(t.Context(), o); err == nil || !strings.Contains(err.Error(), "resources") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if got := h.asked(); got != before {
		t.Errorf("%d requests were sent", got-before)
	}
}
