package folder_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// errand is one Pull for another process of this program, which is killed before its change number Kill.
type errand struct {
	Boxes, ID, Path, State, Base, Name string
	Delete                             bool
	Kill                               int
}

// errandVar is the variable with the errand.
const errandVar = "ARBE_TEST_PULL"

func TestMain(m *testing.M) {
	if text := os.Getenv(errandVar); text != "" {
		if err := runErrand(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	surroundings.Enter()
	os.Exit(m.Run())
}

func runErrand(text string) error {
	var e errand
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return err
	}
	base, err := folder.Load(e.Base)
	if err != nil {
		return err
	}
	ctx, cancel := testContext()
	defer cancel()
	box, err := local.New(e.Boxes).Open(ctx, e.ID)
	if err != nil {
		return err
	}
	s := folder.Sync{Folder: folder.Folder{Path: e.Path}, Base: base, State: e.State, Name: e.Name, Delete: e.Delete}
	n := 0
	s.OnStep(func() error {
		if n++; n == e.Kill {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return nil
	})
	_, err = s.Pull(ctx, box)
	return err
}

// killed has another process pull, and reports whether it was killed before it was done.
func killed(t *testing.T, e errand) bool {
	t.Helper()
	text, err := json.Marshal(e)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), errandVar+"="+string(text))
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return false
}

// TestKilled kills a sync before each of its changes, and has the next one finish it: to the same folder, with nothing
// left.
func TestKilled(t *testing.T) {
	t.Parallel()
	boxes := t.TempDir()
	s := newScene(t, local.New(boxes))
	s.Delete = true
	write(t, s.Path, "edited", "old", "both", "old", "mode", "x", "f", "file", "full/mine", "",
		"d/a", "a", "d/b/c", "c", "d/e", "e",
		"gone", "g", "k/l", "l", "linked", "file", "locked/x", "x", "tofile/a", "a", "tolink/a", "a")
	s.copyIn(t)
	write(t, s.work(), "edited", "new", "both", "box", "made/by/box", "m", "locked/x", "new", "locked/y", "y")
	for _, name := range []string{"f", "gone", "k", "linked", "tofile", "tolink", "d/b"} {
		remove(t, s.work(name))
	}
	write(t, s.work(), "f/a", "a", "f/g/h", "h", "tofile", "t", "d/b", "b")
	must(t, os.Symlink("edited", s.work("linked")))
	must(t, os.Symlink("d", s.work("tolink")))
	must(t, os.Chmod(s.work("mode"), 0o700))
	must(t, os.Chmod(s.work("locked"), 0o500))
	must(t, os.Mkdir(s.work("bare"), 0o500))
	t.Cleanup(func() {
		for _, name := range []string{s.dir("locked"), s.dir("bare"), s.work("locked"), s.work("bare")} {
			must(t, os.Chmod(name, 0o700))
		}
	})
	write(t, s.Path, "both", "host", "d/mine", "m")
	must(t, s.Base.Save(filepath.Join(boxes, "base")))

	// The folder and its state, to begin with each time.
	start := t.TempDir()
	reset := func() {
		must(t, os.RemoveAll(s.State))
		for _, name := range []string{"locked", "bare"} {
			if err := os.Chmod(s.dir(name), 0o700); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		must(t, os.RemoveAll(s.Path))
		must(t, os.CopyFS(s.Path, os.DirFS(start)))
	}
	must(t, os.CopyFS(start, os.DirFS(s.Path)))
	s.pull(t)
	want := tree(t, s.Path)
	for _, part := range []string{
		"both.box: box", "f/g/h: h", "linked -> edited", "tofile: t", "tolink -> d", "locked/ (-r-x------)",
		"bare/ (-r-x------)",
	} {
		if !hasLine(want, part) {
			t.Fatalf("want %q in\n%s", part, want)
		}
	}
	e := errand{
		Boxes: boxes, ID: s.box.Ref().ID, Path: s.Path, State: s.State, Base: filepath.Join(boxes, "base"),
		Delete: true,
	}
	base, err := folder.Load(e.Base)
	must(t, err)
	steps := 0
	for e.Kill = 1; ; e.Kill++ {
		reset()
		if !killed(t, e) {
			break
		}
		steps++
		// The next one is killed, too, and the one after that finishes.
		second := e
		second.Kill = 1 + e.Kill%3
		killed(t, second)
		s.Base = base
		s.pull(t)
		if got := tree(t, s.Path); got != want {
			t.Errorf("killed before change %d: got\n%s\nwant\n%s", e.Kill, got, want)
		}
	}
	if steps < 30 {
		t.Errorf("there were only %d changes", steps)
	}
}
