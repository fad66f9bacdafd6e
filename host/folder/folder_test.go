package folder_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/daytona"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// each runs a test with a provider of each kind. The boxes of both are folders of this machine.
func each(t *testing.T, test func(t *testing.T, p sandbox.Provider)) {
	t.Parallel()
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, local.New(t.TempDir()))
	})
	t.Run("daytona", func(t *testing.T) {
		t.Parallel()
		test(t, atDaytona(t))
	})
}

func atDaytona(t testing.TB) sandbox.Provider {
	t.Helper()
	fake, tr := fakedaytona.New(t), &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	p, err := daytona.New(daytona.Config{
		Key: fake.Key, URL: fake.URL, Pace: 2 * time.Millisecond,
		Transport: tr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scene is a folder and the box that it was copied into.
type scene struct {
	folder.Sync
	provider sandbox.Provider
	box      sandbox.Sandbox
}

// dir and work are the two sides.
func (s *scene) dir(names ...string) string {
	return filepath.Join(append([]string{s.Path}, names...)...)
}

func (s *scene) work(names ...string) string {
	return filepath.Join(append([]string{s.box.WorkDir()}, names...)...)
}

// newScene makes a box. What dir has is to be filled in before copyIn.
func newScene(t testing.TB, p sandbox.Provider, exclude ...string) *scene {
	t.Helper()
	box, err := p.Create(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Destroy(context.Background(), box.Ref().ID); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	s := &scene{provider: p, box: box}
	s.Path, s.Exclude, s.State = filepath.Join(dir, "folder"), exclude, filepath.Join(dir, "state")
	if err := os.Mkdir(s.Path, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) copyIn(t testing.TB) {
	t.Helper()
	var err error
	if s.Base, err = s.CopyIn(t.Context(), s.box); err != nil {
		t.Fatal(err)
	}
}

// pull merges, and continues from there.
func (s *scene) pull(t testing.TB) folder.Result {
	t.Helper()
	res, err := s.Pull(t.Context(), s.box)
	if err != nil {
		t.Fatal(err)
	}
	s.Base = res.Base
	s.clean(t)
	return res
}

// ours is the name of a temporary file.
var ours = regexp.MustCompile(`\.arbe-[0-9a-f]{8}-[0-9a-f]{4}`)

// clean checks that nothing is left of a sync, neither in the state nor in the box.
func (s *scene) clean(t testing.TB) {
	t.Helper()
	for _, pattern := range []string{"/state/archive*", "/state/list", "/state/sums"} {
		if left, err := filepath.Glob(filepath.Dir(s.State) + pattern); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	if left, err := filepath.Glob(s.box.Home() + "/.arbe/*"); err != nil || len(left) > 0 {
		t.Errorf("left in the box: %v, %v", left, err)
	}
	if ours.MatchString(tree(t, s.Path)) {
		t.Errorf("a temporary file is left:\n%s", tree(t, s.Path))
	}
}

// tree lists a folder's files, one a line: "name: content", "name/", "name -> target", with the mode where it is not
// 0644, or 0755 of a folder.
func tree(t testing.TB, dir string) string {
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
		info, err := entry.Info()
		if err != nil {
			return err
		}
		line := rel
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			all = append(all, rel+" -> "+target)
			return err
		case info.IsDir():
			line += "/"
		case !info.Mode().IsRegular():
			all = append(all, rel+" "+info.Mode().Type().String())
			return nil
		default:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += ": " + string(b)
		}
		if m := info.Mode().Perm(); m != 0o644 && !info.IsDir() || m != 0o755 && info.IsDir() {
			line += " (" + m.String() + ")"
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}

// write writes files, given as name and content, and the folders that they need.
func write(t testing.TB, dir string, files ...string) {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	must(t, os.RemoveAll(path))
}

func hasLine(tree, line string) bool { return slices.Contains(strings.Split(tree, "\n"), line) }

func testContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 5*time.Minute)
}
