package sandbox_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// placer is a box with more than one repository.
type placer interface {
	At(path string) (sandbox.Sandbox, error)
}

// at returns a box with another working directory.
func at(t *testing.T, b sandbox.Sandbox, path string) sandbox.Sandbox {
	t.Helper()
	placed, err := b.(placer).At(path)
	if err != nil {
		t.Fatal(err)
	}
	return placed
}

// clone clones a repository into the working directory of a box.
func clone(t *testing.T, b sandbox.Sandbox, r sandbox.Repository) error {
	t.Helper()
	return b.(interface {
		Clone(ctx context.Context, r sandbox.Repository) error
	}).Clone(t.Context(), r)
}

// Several repositories stand in one workspace, each at its branch, tag or commit. A box that is opened again has the
// same working directory.
func TestClone(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		seed := t.TempDir()
		as := []string{"-c", "user.name=n", "-c", "user.email=e"}
		git(t, seed, "clone", "-q", h.repos.bare("repo"), ".")
		git(t, seed, append(as, "commit", "-q", "--allow-empty", "-m", "second")...)
		git(t, seed, append(as, "tag", "-a", "-m", "t", "v1")...)
		second := git(t, seed, "rev-parse", "HEAD")
		git(t, seed, "checkout", "-q", "-b", "side", "trunk^")
		git(t, seed, append(as, "commit", "-q", "--allow-empty", "-m", "aside")...)
		git(t, seed, append(as, "commit", "-q", "--allow-empty", "-m", "aside again")...)
		aside := git(t, seed, "rev-parse", "HEAD^")
		git(t, seed, "push", "-q", "origin", "trunk", "side", "v1")

		b := h.create(t, sandbox.Options{Work: "first/one"})
		for _, tt := range []struct {
			name, path string
			r          sandbox.Repository
			script     string
			want       string
		}{
			{"the default branch", "first/one", sandbox.Repository{}, "git branch --show-current", "trunk"},
			{"a branch", "branch", sandbox.Repository{Branch: "side"}, "git branch --show-current", "side"},
			{"a depth", "depth", sandbox.Repository{Branch: "side", Depth: 1}, "git rev-list --count HEAD", "1"},
			{"a tag", "tag", sandbox.Repository{Tag: "v1", Depth: 1}, "git rev-parse HEAD; git describe", second + "\nv1"},
			{"a commit", "commit", sandbox.Repository{Commit: aside}, "git rev-parse HEAD", aside},
			{
				"nothing that is nowhere else", "commit2",
				sandbox.Repository{Commit: aside},
				"git rev-list --count --all HEAD --not --remotes", "0",
			},
			{
				"a new branch", "new",
				sandbox.Repository{Tag: "v1", Work: "mine"},
				"git branch --show-current; git rev-parse HEAD", "mine\n" + second,
			},
			{
				"a branch of the remote's", "old",
				sandbox.Repository{Tag: "v1", Work: "side"},
				"git branch --show-current; git rev-parse HEAD^", "side\n" + aside,
			},
		} {
			tt.r.Repo, tt.r.GitHub = "org/repo", h.repos.URL
			placed := at(t, b, tt.path)
			if err := clone(t, placed, tt.r); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			if res := run(t, placed, tt.script); strings.TrimSpace(string(res.Stdout)) != tt.want {
				t.Errorf("%s: got %s%s, want %s", tt.name, res.Stdout, res.Stderr, tt.want)
			}
		}
		opened, err := h.Open(t.Context(), b.Ref().ID)
		if err != nil || opened.WorkDir() != b.WorkDir() || !strings.HasSuffix(b.WorkDir(), "/first/one") {
			t.Errorf("the working directory is %s, of the opened box %s, %v", b.WorkDir(), opened.WorkDir(), err)
		}
		if _, err := b.(placer).At("../.."); err == nil {
			t.Error("a path out of the workspace is taken")
		}
	})
}

// A repository that can't be cloned has its cause in the error, and no server but GitHub gets the token.
func TestRepositoryFails(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{Work: "first"})
		for _, tt := range []struct {
			name string
			r    sandbox.Repository
			want string
		}{
			{"no repository", sandbox.Repository{Repo: "org/none", GitHub: h.repos.URL}, "none.git"},
			{"no branch", sandbox.Repository{Repo: "org/repo", GitHub: h.repos.URL, Branch: "gone"}, "gone"},
			{"no tag", sandbox.Repository{Repo: "org/repo", GitHub: h.repos.URL, Tag: "v9"}, "v9"},
			{
				"no commit",
				sandbox.Repository{Repo: "org/repo", GitHub: h.repos.URL, Commit: strings.Repeat("ab", 20)},
				"abababab",
			},
			{
				"a token for another server",
				sandbox.Repository{
					Repo: h.repos.URL + "/org/private.git", GitHub: "https://git.example.org", Token: token,
				},
				"private.git",
			},
			{"an option", sandbox.Repository{Repo: "org/repo", GitHub: h.repos.URL, Branch: "--upload-pack=x"}, "branch"},
		} {
			err := clone(t, at(t, b, strings.ReplaceAll(tt.name, " ", "-")), tt.r)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), token) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		private := sandbox.Repository{Repo: "org/private", GitHub: h.repos.URL, Tag: "", Token: token}
		if err := clone(t, at(t, b, "private"), private); err != nil {
			t.Error(err)
		}
		if all := grep(t, b.Home(), token) + grep(t, at(t, b, "private").WorkDir(), token); all != "" {
			t.Errorf("the token stands in %s", all)
		}
	})
}

// A folder of this host is cloned into a local box alone.
func TestCloneFolder(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{Work: "first"})
		err := clone(t, b, sandbox.Repository{Repo: h.repos.bare("repo"), Depth: 1})
		if h.fake != nil {
			if err == nil || !strings.Contains(err.Error(), "is a folder of this host") {
				t.Errorf("Daytona: %v", err)
			}
		} else if _, serr := os.Stat(b.WorkDir() + "/README"); err != nil || serr != nil {
			t.Errorf("local: %v, %v", err, serr)
		}
	})
}

// A box is built from an image, and one that can't be built leaves nothing.
func TestImage(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	h.create(t, sandbox.Options{Image: "node:22-bookworm"})
	if box := h.fake.Boxes()[0]; box.Image != "node:22-bookworm" || box.Snapshot != "" {
		t.Errorf("%+v", box)
	}
	for o, want := range map[*sandbox.Options]string{
		{Image: "none:1"}:           "build_failed: pull access denied for none:1",
		{Image: "a\nRUN b"}:         "is not the name of an image",
		{Image: "a", Snapshot: "b"}: "the image a and the snapshot b exclude each other",
		{Snapshot: "none"}:          "Snapshot none not found",
		{Work: "../x"}:              "path confinement violation",
		{Volumes: []sandbox.Volume{{Name: "none", Path: "/v"}}}: "there is no volume none: make it at Daytona first",
	} {
		if _, err := h.Create(t.Context(), *o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
	if boxes := h.fake.Boxes(); len(boxes) != 1 {
		t.Errorf("boxes: %+v", boxes)
	}
}

// A box gets its volumes, by name or id, once they are ready.
func TestVolumes(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	h.fake.Set(func(s *fakedaytona.Server) {
		s.Volumes = []fakedaytona.Volume{
			{ID: "id-1", Name: "one"},
			{ID: "id-2", Name: "two", State: "pending_create", Ready: time.Now().Add(100 * time.Millisecond)},
			{ID: "id-3", Name: "three", State: "error", ErrorReason: "no space"},
		}
	})
	h.create(t, sandbox.Options{
		Volumes: []sandbox.Volume{{Name: "one", Path: "/data/one"}, {Name: "id-2", Path: "/two"}},
	})
	got := h.fake.Boxes()[0].Volumes
	want := []fakedaytona.Mount{{VolumeID: "id-1", MountPath: "/data/one"}, {VolumeID: "id-2", MountPath: "/two"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	_, err := h.Create(t.Context(), sandbox.Options{Volumes: []sandbox.Volume{{Name: "three", Path: "/v"}}})
	if err == nil || !strings.Contains(err.Error(), "the volume three is error no space") {
		t.Errorf("got %v", err)
	}
}

// A local box refuses what a folder of this machine can't have, and makes nothing.
func TestLocalRefuses(t *testing.T) {
	t.Parallel()
	h := localHouse(t)
	for key, o := range map[string]sandbox.Options{
		"image": {Image: "a"}, "snapshot": {Snapshot: "a"}, "resources": {Resources: sandbox.Resources{CPU: 1}},
		"volumes": {Volumes: []sandbox.Volume{{Name: "a", Path: "/a"}}},
	} {
		if _, err := h.Create(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
			t.Errorf("%s: %v", key, err)
		}
	}
	var confined *sandbox.ConfinedError
	if _, err := h.Create(t.Context(), sandbox.Options{Work: "../x"}); !errors.As(err, &confined) {
		t.Errorf("a path out of the workspace: %v", err)
	}
	if boxes, err := h.List(t.Context(), nil); err != nil || len(boxes) > 0 {
		t.Errorf("boxes: %v, %v", boxes, err)
	}
}
