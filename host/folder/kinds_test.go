package folder_test

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox"
)

// TestKinds: hard links, special files, names that are long or not UTF-8, and what earlier syncs have left.
func TestKinds(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		long, longest := strings.Repeat("n", 250), strings.Repeat("é", 127)+"x" // 255 bytes
		raw := "raw\xff\n\"' $(x) \\"
		write(t, s.Path, "one", "old", long, "old", longest, "old", raw, "old", "-n", "old",
			".arbe-one", "left", ".arbe-"+long[:200], "left",
			"replaced", "file", "unreadable", "old")
		must(t, os.Link(s.dir("one"), s.dir("two")))
		must(t, syscall.Mkfifo(s.dir("pipe"), 0o644))
		s.copyIn(t)
		if _, ok := s.Base.Manifest["pipe"]; ok || s.Base.Manifest[raw].Size != 3 {
			t.Errorf("the manifest is wrong: %v", s.Base)
		}
		if s.Base.Manifest["one"] != s.Base.Manifest["two"] || s.Base.Manifest["two"].Type != folder.File {
			t.Errorf("a hard link was sent as %v", s.Base.Manifest["two"])
		}
		write(t, s.Path, long, "host", longest, "host")
		for _, name := range []string{"one", long, longest, raw, "-n"} {
			write(t, s.work(), name, "box")
		}
		must(t, os.Link(s.work("one"), s.work("three")))
		must(t, os.Link(s.work("one"), s.work("four")))
		must(t, syscall.Mkfifo(s.work("pipe2"), 0o644))
		must(t, syscall.Mknod(s.work("socket"), syscall.S_IFSOCK|0o644, 0))
		remove(t, s.work("replaced"))
		must(t, syscall.Mkfifo(s.work("replaced"), 0o644))
		must(t, os.Chmod(s.work("-n"), os.ModeSetuid|0o4755))
		s.Delete = true
		res := s.pull(t)
		cut := strings.Repeat("é", 118) // with .box-HASH within 255 bytes
		var beside string
		for line := range strings.Lines(tree(t, s.Path)) {
			if name, content, _ := strings.Cut(strings.TrimSpace(line), ": "); strings.HasPrefix(name, cut) &&
				content == "box" {
				beside = name
			}
		}
		if len(beside) > 255 || !strings.Contains(beside, ".box-") {
			t.Errorf("the box's version of the longest name is %q", beside)
		}
		for _, line := range []string{
			"one: box", "two: old", "three: box", "four: box", long + ": host", long + ".box: box", longest + ": host",
			".arbe-one: left",
			"replaced: file", "-n: box (-rwxr-xr-x)", "pipe p---------",
		} {
			if !hasLine(tree(t, s.Path), line) {
				t.Errorf("want %q in\n%s", line, tree(t, s.Path))
			}
		}
		if got, err := os.ReadFile(s.dir(raw)); err != nil || string(got) != "box" {
			t.Errorf("%q, %v", got, err)
		}
		if got := strings.Join(res.Skipped, " "); got != "pipe2 replaced socket" {
			t.Errorf("skipped %s", got)
		}
	})
}

// TestUntouched: what the box has not changed keeps its inode, times and links.
func TestUntouched(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		write(t, s.Path, "a/b", "1", "c", "1", "chmod", "1", "d", "1")
		must(t, os.Link(s.dir("c"), filepath.Join(t.TempDir(), "other")))
		must(t, os.Symlink("c", s.dir("l")))
		s.copyIn(t)
		before := map[string]os.FileInfo{}
		names := []string{"a", "a/b", "c", "l", "chmod"}
		for _, name := range names {
			info, err := os.Lstat(s.dir(name))
			must(t, err)
			before[name] = info
		}
		write(t, s.work(), "d", "2", "a/b", "1") // the second is written, and as it was
		must(t, os.Chmod(s.work("chmod"), 0o755))
		if res := s.pull(t); res.Copied != 2 {
			t.Errorf("%+v", res)
		}
		for _, name := range names {
			info, err := os.Lstat(s.dir(name))
			must(t, err)
			was, is := before[name].Sys().(*syscall.Stat_t), info.Sys().(*syscall.Stat_t)
			if is.Ino != was.Ino || is.Nlink != was.Nlink || is.Mtim != was.Mtim || is.Ctim != was.Ctim &&
				name != "chmod" {
				t.Errorf("%s was %+v, is %+v", name, was, is)
			}
		}
	})
}

// TestLarge: 40 MiB that don't compress, there and back.
func TestLarge(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		big := func(seed byte) []byte {
			b := make([]byte, 20<<20)
			_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
			return b
		}
		must(t, os.WriteFile(s.dir("sent"), big(1), 0o644))
		s.copyIn(t)
		got, err := os.ReadFile(s.work("sent"))
		if err != nil || !bytes.Equal(got, big(1)) || s.Base.Manifest["sent"].SHA256 != sha256.Sum256(got) {
			t.Fatalf("%d bytes arrived, %v", len(got), err)
		}
		must(t, os.WriteFile(s.work("sent"), big(2), 0o644))
		must(t, os.WriteFile(s.work("made"), big(3), 0o644))
		res := s.pull(t)
		for name, seed := range map[string]byte{"sent": 2, "made": 3} {
			if got, err := os.ReadFile(s.dir(name)); err != nil || !bytes.Equal(got, big(seed)) {
				t.Errorf("%s: %d bytes, %v, %+v", name, len(got), err, res)
			}
		}
	})
}

// TestLinksOut: no link of the host's is followed, not even one that was a folder when the copy was made.
func TestLinksOut(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		write(t, s.Path, "out/a", "1", "in/a", "1", "other/a", "1", "file", "1", "gone/a", "1")
		s.copyIn(t)
		outside := t.TempDir()
		write(t, outside, "a", "outside", "file", "outside")
		for name, target := range map[string]string{
			"out": outside, "in": "other", "file": filepath.Join(outside, "file"), "gone": outside,
		} {
			remove(t, s.dir(name))
			must(t, os.Symlink(target, s.dir(name)))
		}
		write(t, s.work(), "out/a", "2", "out/b/c", "2", "in/a", "2", "file", "2")
		remove(t, s.work("gone"))
		s.Delete = true
		s.pull(t)
		want := "file -> " + outside + "/file\nfile.box: 2\ngone -> " + outside +
			"\nin -> other\nin.box/\nin.box/a: 2\n" +
			"other/\nother/a: 1\n" +
			"out -> " + outside + "\nout.box/\nout.box/a: 2\nout.box/b/\nout.box/b/c: 2"
		if got := tree(t, s.Path); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if got := tree(t, outside); got != "a: outside\nfile: outside" {
			t.Errorf("outside there is\n%s", got)
		}
	})
}

// TestBesideTaken: a name that is in use stays as it is, and one that has the box's version already is used again.
func TestBesideTaken(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		write(t, s.Path, "a", "old", "b", "old", "b.box", "mine", "c", "old")
		s.copyIn(t)
		write(t, s.Path, "a", "host", "a.box", "mine", "b", "host", "c", "host")
		write(t, s.work(), "a", "box", "b", "box", "c", "box", "c.box", "made by the box")
		base := s.Base
		var trees []string
		for range 2 { // as if the first answer had been lost
			s.Base = base
			res := s.pull(t)
			if got := strings.Join(res.Conflicts, " "); got != "a b c" {
				t.Errorf("conflicts %s", got)
			}
			trees = append(trees, tree(t, s.Path))
		}
		if trees[0] != trees[1] {
			t.Errorf("first\n%s\nthen\n%s", trees[0], trees[1])
		}
		n := 0
		for line := range strings.Lines(trees[0]) {
			if strings.Contains(line, ".box-") && strings.Contains(line, ": box") {
				n++
			}
		}
		for _, line := range []string{"a: host", "a.box: mine", "b.box: mine", "c.box: made by the box"} {
			if !hasLine(trees[0], line) || n != 3 {
				t.Errorf("want %q and 3 hashes in\n%s", line, trees[0])
			}
		}
		// A new version of the box is a new conflict, and none is lost.
		write(t, s.work(), "a", "box 2")
		s.pull(t)
		if got := tree(t, s.Path); strings.Count(got, "\na.box-") != 2 || !strings.Contains(got, ": box 2") {
			t.Errorf("got\n%s", got)
		}
	})
}

// TestReadOnly: files in folders that can't be written to are replaced, and the folders stay as they are.
func TestReadOnly(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		write(t, s.Path, "d/e/x", "1", "d/e/y", "1")
		lock := func(dir string, m os.FileMode) {
			must(t, os.Chmod(dir, m|0o700))
			must(t, os.Chmod(filepath.Join(dir, "e"), m))
			must(t, os.Chmod(dir, m))
		}
		lock(s.dir("d"), 0o555)
		t.Cleanup(func() {
			lock(s.dir("d"), 0o755)
			lock(s.work("d"), 0o755)
		})
		s.copyIn(t)
		lock(s.work("d"), 0o755)
		write(t, s.work(), "d/e/x", "2", "d/e/z/z", "2")
		lock(s.work("d"), 0o555)
		s.pull(t)
		want := "d/ (-r-xr-xr-x)\nd/e/ (-r-xr-xr-x)\nd/e/x: 2\nd/e/y: 1\nd/e/z/\nd/e/z/z: 2"
		if got := tree(t, s.Path); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestUnreadable: a file that can't be read is an error with its name, in the folder and in the box; a file of the
// folder that can't be read any more is kept.
func TestUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		return // root reads everything
	}
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		write(t, s.Path, "a", "1", "b", "1")
		must(t, os.Chmod(s.dir("b"), 0))
		if _, err := s.CopyIn(t.Context(), s.box); err == nil ||
			!strings.Contains(err.Error(), "b: permission denied") {
			t.Error("the folder:", err)
		}
		must(t, os.Chmod(s.dir("b"), 0o644))
		s.copyIn(t)
		write(t, s.work(), "b", "2", "c", "2")
		must(t, os.Chmod(s.work("c"), 0))
		if _, err := s.Pull(t.Context(), s.box); err == nil || !strings.Contains(err.Error(), "./c") {
			t.Error("the box:", err)
		}
		must(t, os.Chmod(s.work("c"), 0o644))
		must(t, os.Chmod(s.dir("b"), 0))
		res, err := s.Pull(t.Context(), s.box)
		if err != nil || res.Copied != 1 || strings.Join(res.Conflicts, " ") != "b" {
			t.Errorf("%+v, %v", res, err)
		}
	})
}
