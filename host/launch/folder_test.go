package launch_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/sandbox"
)

// tree is all that is in a folder: "path content", a link's as "path -> target".
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case entry.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			all = append(all, rel+" -> "+target)
			return err
		case entry.IsDir():
			all = append(all, rel+"/")
			return nil
		}
		b, err := os.ReadFile(path)
		all = append(all, rel+" "+string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

func fill(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func newBox(t *testing.T) sandbox.Sandbox {
	t.Helper()
	box, err := sandbox.NewLocal(t.TempDir()).Create(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return box
}

// What has become of a folder in a box comes back, and nothing else is touched.
func TestCopyOut(t *testing.T) {
	box := newBox(t)
	fill(t, box.WorkDir(), map[string]string{"a/changed": "new", "added/x": "x", "skip.log": "from the box", "node_modules/m": "from the box", "big": strings.Repeat("0123456789abcdef", 1<<16)})
	if err := os.Symlink("/etc", filepath.Join(box.WorkDir(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(box.WorkDir(), "added/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "folder")
	fill(t, dir, map[string]string{"a/changed": "old", "gone/deep/y": "y", "mine.log": "kept", "node_modules/n": "kept", "half/z": "z", "half/w.log": "kept"})
	folder := launch.Folder{Path: dir, Exclude: []string{"*.log", "node_modules"}}
	if err := folder.CopyOut(t.Context(), box); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(tree(t, dir), strings.Repeat("0123456789abcdef", 1<<16), "BIG")
	want := "a/\na/changed new\nadded/\nadded/x x\nbig BIG\nhalf/\nhalf/w.log kept\nlink -> /etc\nmine.log kept\nnode_modules/\nnode_modules/n kept"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if st, err := os.Stat(filepath.Join(dir, "added/x")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("the mode is %v, %v", st.Mode(), err)
	}
	// Again, over a link that leads out of the folder.
	if err := os.Remove(filepath.Join(box.WorkDir(), "link")); err != nil {
		t.Fatal(err)
	}
	fill(t, box.WorkDir(), map[string]string{"link/passwd": "mine"})
	outside := t.TempDir()
	if err := os.Remove(filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := folder.CopyOut(t.Context(), box); err == nil {
		t.Error("a link that leads out was followed")
	}
	if got := tree(t, outside); got != "" {
		t.Errorf("outside of the folder there is %s", got)
	}
}

// A folder that could not be read whole takes nothing away.
func TestCopyOutFails(t *testing.T) {
	box := newBox(t)
	fill(t, box.WorkDir(), map[string]string{"a": "a"})
	dir := filepath.Join(t.TempDir(), "folder")
	fill(t, dir, map[string]string{"b": "b"})
	if err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := (launch.Folder{Path: dir}).CopyOut(t.Context(), box); err == nil || tree(t, dir) != "b b" {
		t.Errorf("%v; the folder has %s", err, tree(t, dir))
	}
}
