package sandbox_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// TestLocalRepo clones a folder of this machine.
func TestLocalRepo(t *testing.T) {
	t.Parallel()
	h := localHouse(t)
	b := h.create(t, sandbox.Options{Repo: h.repos.bare("repo"), Branch: "work"})
	want := git(t, h.repos.bare("repo"), "rev-parse", "trunk")
	if got := git(t, b.WorkDir(), "rev-parse", "HEAD"); got != want {
		t.Errorf("it begins at %s, want %s", got, want)
	}
}

// TestSnapshotRunsNoHook: a hook is the agent's to write, and may refuse each commit.
func TestSnapshotRunsNoHook(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{Repo: h.repo, Branch: "work"})
		for _, hook := range []string{"pre-commit", "commit-msg"} {
			file := filepath.Join(b.WorkDir(), ".git", "hooks", hook)
			if err := os.WriteFile(file, []byte("#!/bin/sh\nenv >"+b.Home()+"/ran; exit 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Snapshot(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		if got := read(b.Home() + "/ran"); got != "" {
			t.Errorf("a hook ran: %s", got)
		}
	})
}

// TestLocalEnv: of our own environment a box has next to nothing.
func TestLocalEnv(t *testing.T) {
	t.Setenv("ARBE_TEST_SECRET", "ours")
	h := localHouse(t)
	b := h.create(t, sandbox.Options{})
	if res := run(t, b, "env"); strings.Contains(string(res.Stdout), "ARBE_TEST_SECRET") ||
		!strings.Contains(string(res.Stdout), "HOME="+b.Home()+"\n") {
		t.Errorf("the environment: %s", res.Stdout)
	}
}

// TestLinks: a link in the box leads no file out of it.
func TestLinks(t *testing.T) {
	t.Parallel()
	h := localHouse(t)
	b := h.create(t, sandbox.Options{})
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(b.WorkDir(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := b.Upload(t.Context(), sandbox.File{Path: "link/x"}); err == nil {
		t.Error("uploaded through a link")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside: %v, %v", left, err)
	}
}

func TestLocalFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "boxes")
	p := local.New(dir)
	if boxes, err := p.List(t.Context(), nil); err != nil || len(boxes) > 0 {
		t.Errorf("%v, %v", boxes, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "somebody's"), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := p.Create(t.Context(), sandbox.Options{Env: map[string]string{"SECRET": "x"}})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Dir(b.Home())
	for file, want := range map[string]fs.FileMode{own: 0o700, filepath.Join(own, "box.json"): 0o600} {
		if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", file, fi.Mode(), err)
		}
	}
	if boxes, err := p.List(t.Context(), nil); err != nil || len(boxes) != 1 {
		t.Errorf("%v, %v", boxes, err)
	}
	if err := p.Destroy(t.Context(), b.Ref().ID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "somebody's")); err != nil {
		t.Error(err)
	}
	if _, err := p.Open(t.Context(), b.Ref().ID); !errors.Is(err, sandbox.ErrGone) {
		t.Error(err)
	}
	if _, err := p.Open(t.Context(), "somebody's"); err == nil {
		t.Error("opened what is no box")
	}
}
