package folder_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// meddler is a box whose calls can be meddled with, by their number.
type meddler struct {
	sandbox.Sandbox
	n     int
	exec  func(n int, c *sandbox.Command) error
	fetch func(n int, data []byte) ([]byte, error)
	send  func(n int) error
}

func (m *meddler) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	m.n++
	if m.exec != nil {
		if err := m.exec(m.n, &c); err != nil {
			return sandbox.Result{}, err
		}
	}
	return m.Sandbox.Exec(ctx, c)
}

func (m *meddler) Upload(ctx context.Context, files ...sandbox.File) error {
	m.n++
	if m.send != nil {
		if err := m.send(m.n); err != nil {
			return err
		}
	}
	return m.Sandbox.Upload(ctx, files...)
}

func (m *meddler) Download(ctx context.Context, path string, w io.Writer) error {
	m.n++
	if m.fetch == nil {
		return m.Sandbox.Download(ctx, path, w)
	}
	var b bytes.Buffer
	if err := m.Sandbox.Download(ctx, path, &b); err != nil {
		return err
	}
	data, err := m.fetch(m.n, b.Bytes())
	_, werr := w.Write(data)
	return errors.Join(err, werr)
}

// TestBoxFaults has each call to the box fail in each way. The folder stays as it is.
func TestBoxFaults(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		s.Delete = true
		write(t, s.Path, "edited", "old", "deleted", "old", "d/a", "old")
		s.copyIn(t)
		write(t, s.work(), "edited", strings.Repeat("new", 1000), "made", "new")
		remove(t, s.work("deleted"))
		before := tree(t, s.Path)
		at := func(k int, fault *meddler) *meddler {
			return &meddler{
				Sandbox: s.box,
				exec: func(n int, c *sandbox.Command) error {
					if n == k && fault.exec != nil {
						return fault.exec(n, c)
					}
					return nil
				},
				send: func(n int) error {
					if n == k && fault.send != nil {
						return fault.send(n)
					}
					return nil
				},
				fetch: func(n int, data []byte) ([]byte, error) {
					if n == k && fault.fetch != nil {
						return fault.fetch(n, data)
					}
					return data, nil
				},
			}
		}
		broken := errors.New("broken")
		faults := map[string]*meddler{
			"error": {
				exec:  func(int, *sandbox.Command) error { return broken },
				fetch: func(_ int, data []byte) ([]byte, error) { return data[:len(data)/2], broken },
				send:  func(int) error { return broken },
			},
			"cut": {
				exec: func(_ int, c *sandbox.Command) error {
					c.Argv[2] = "exit 3"
					return nil
				},
				fetch: func(_ int, data []byte) ([]byte, error) { return data[:len(data)-1], nil },
			},
			"bad": {
				exec: func(_ int, c *sandbox.Command) error {
					c.Argv[2] = "echo no such thing"
					return nil
				},
				fetch: func(_ int, data []byte) ([]byte, error) {
					data[len(data)/2] ^= 1
					return data, nil
				},
			},
			"none": {
				exec: func(_ int, c *sandbox.Command) error {
					c.Argv[2] = ":"
					return nil
				},
				fetch: func(int, []byte) ([]byte, error) { return nil, nil },
			},
		}
		// A Pull makes six calls, and one to tidy: list, its two files, the upload of what is wanted, the archive, it.
		for name, fault := range faults {
			for k := 1; k <= 6; k++ {
				if k == 4 && fault.send == nil {
					continue
				}
				res, err := s.Pull(t.Context(), at(k, fault))
				if err == nil || res.Error != err.Error() || res.Copied+res.Deleted > 0 ||
					!reflect.DeepEqual(res.Base, s.Base) {
					t.Errorf("%s at %d: %+v, %v", name, k, res, err)
				}
				if got := tree(t, s.Path); got != before {
					t.Fatalf("%s at %d: the folder was changed to\n%s", name, k, got)
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Pull(ctx, s.box); err == nil || tree(t, s.Path) != before {
			t.Error("cancelled:", err)
		}
		if res := s.pull(t); res.Copied != 2 || res.Deleted != 1 {
			t.Errorf("without a fault: %+v", res)
		}
	})
}

// TestEmptyBox: a box that has nothing, or not even its folder, empties nothing.
func TestEmptyBox(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		for _, deletes := range []bool{false, true} {
			s := newScene(t, p)
			s.Delete = deletes
			write(t, s.Path, "a", "1", "b/c", "1")
			s.copyIn(t)
			before := tree(t, s.Path)
			remove(t, s.work("a"))
			remove(t, s.work("b"))
			if res, err := s.Pull(t.Context(), s.box); (err != nil) != deletes || tree(t, s.Path) != before {
				t.Errorf("empty, delete %v: %+v, %v\n%s", deletes, res, err, tree(t, s.Path))
			}
			remove(t, s.work())
			if res, err := s.Pull(t.Context(), s.box); err == nil || tree(t, s.Path) != before {
				t.Errorf("gone, delete %v: %+v, %v\n%s", deletes, res, err, tree(t, s.Path))
			}
			must(t, s.provider.Destroy(t.Context(), s.box.Ref().ID))
			if res, err := s.Pull(t.Context(), s.box); !errors.Is(err, sandbox.ErrGone) || tree(t, s.Path) != before {
				t.Errorf("released, delete %v: %+v, %v\n%s", deletes, res, err, tree(t, s.Path))
			}
		}
	})
}

// TestBoxInUse changes files of the box between the moments at which they are listed and packed.
func TestBoxInUse(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		s.Delete = true
		write(t, s.Path, "vanishing", "old", "typed", "old", "log", "old")
		s.copyIn(t)
		write(t, s.work(), "log", "1\n", "vanishing", "new", "passing", "new", "typed", "new",
			"d/e/log", "1\n", "steady", "s")
		box := &meddler{Sandbox: s.box, exec: func(n int, _ *sandbox.Command) error {
			if n == 5 { // the second script: it packs
				write(t, s.work(), "log", "1\n2\n", "d/e/log", "")
				for _, name := range []string{"vanishing", "passing", "typed"} {
					remove(t, s.work(name))
				}
				write(t, s.work(), "typed/x", "x")
			}
			return nil
		}}
		res, err := s.Pull(t.Context(), box)
		if err != nil {
			t.Fatal(err)
		}
		want := "d/\nd/e/\nd/e/log: \nlog: 1\n2\n\nsteady: s\ntyped: old\nvanishing: old"
		if got := tree(t, s.Path); got != want || len(res.Conflicts) > 0 {
			t.Errorf("%+v; got\n%s\nwant\n%s", res, got, want)
		}
		s.Base = res.Base
		s.pull(t)
		want = "d/\nd/e/\nd/e/log: \nlog: 1\n2\n\nsteady: s\ntyped/\ntyped/x: x"
		if got := tree(t, s.Path); got != want {
			t.Errorf("the next: got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestFolderInUse copies a folder in while files of it grow, are replaced, come and go.
func TestFolderInUse(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p)
		zeros := strings.Repeat("0", 3<<20)
		write(t, s.Path, "grows", zeros, "shrinks", zeros, "replaced", "0", "steady", "s")
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				f, err := os.OpenFile(s.dir("grows"), os.O_APPEND|os.O_WRONLY, 0)
				if err == nil {
					_, err = fmt.Fprintln(f, i)
					err = errors.Join(err, f.Close(), os.Truncate(s.dir("shrinks"), int64(3<<20-i%(3<<20))))
				}
				err = errors.Join(err,
					os.WriteFile(s.dir("new"), []byte(fmt.Sprint(i)), 0o644),
					os.Rename(s.dir("new"), s.dir("replaced")),
					os.WriteFile(s.dir("comes"), nil, 0o644), os.Remove(s.dir("comes")))
				if err != nil {
					t.Error(err)
					return
				}
			}
		}()
		s.copyIn(t)
		close(stop)
		<-stopped
		for _, name := range []string{"grows", "shrinks", "replaced", "steady"} {
			if s.Base.Manifest[name].Type != folder.File {
				t.Errorf("%s was not sent", name)
			}
		}
		// What arrived is exactly what the manifest has: a second copy, of the box's folder, has the same.
		again := folder.Folder{Path: s.work()}
		m, err := again.CopyIn(t.Context(), newScene(t, p).box)
		if err != nil || !maps.Equal(m.Manifest, s.Base.Manifest) {
			t.Errorf("%v\nthe box has %v\nwant %v", err, m, s.Base)
		}
	})
}

// TestBusy: two syncs with one state are not run at once.
func TestBusy(t *testing.T) {
	t.Parallel()
	s := newScene(t, local.New(t.TempDir()))
	write(t, s.Path, "a", "1")
	s.copyIn(t)
	write(t, s.work(), "a", "2")
	s.OnStep(func() error {
		other := s.Sync
		other.OnStep(nil)
		if _, err := other.Pull(t.Context(), s.box); !errors.Is(err, folder.ErrBusy) {
			t.Error("a second sync:", err)
		}
		return nil
	})
	if res := s.pull(t); res.Copied != 1 {
		t.Errorf("%+v", res)
	}
}

// TestHostChanges changes the host's version after it was compared and before it is replaced: it is kept.
func TestHostChanges(t *testing.T) {
	t.Parallel()
	s := newScene(t, local.New(t.TempDir()))
	write(t, s.Path, "a", "1", "f", "1")
	s.copyIn(t)
	write(t, s.work(), "a", "2")
	remove(t, s.work("f"))
	write(t, s.work(), "f/x", "2")
	n := 0
	s.OnStep(func() error {
		if n++; n == 2 { // the temporary file is open
			write(t, s.Path, "a", "the user's")
		}
		return nil
	})
	res := s.pull(t)
	for _, line := range []string{"a: the user's", "a.box: 2", "f/x: 2"} {
		if !hasLine(tree(t, s.Path), line) || !slices.Contains(res.Conflicts, "a") {
			t.Errorf("want %q in\n%s\n%+v", line, tree(t, s.Path), res)
		}
	}
}

// TestHostileBox: a box that answers with paths outside of the folder, or sends what was not asked for, changes nothing
// but what it may.
func TestHostileBox(t *testing.T) {
	t.Parallel()
	about := `; about() { wc -c <"$1"; sha256sum <"$1" | cut -c1-64; }; `
	list := func(entries string) string {
		return `dir=$1; mkdir -p "$dir"; printf '` + entries + `' >"$dir/list"; : >"$dir/sums"` + about +
			`echo $(about "$dir/list") $(about "$dir/sums")`
	}
	pack := func(make string) string {
		return `dir=$1; rm -rf "$dir/t"; mkdir "$dir/t"; cd "$dir/t"; ` + make + about + `echo $(about "$dir/archive")`
	}
	const good = `f 644 1 ./made\0\0`
	for _, tt := range []struct{ name, list, pack string }{
		{"a path outside", list(`f 644 1 ./../made\0\0`), ""},
		{"a path outside below a folder", list(`d 755 1 ./d\0\0f 644 1 ./d/../../made\0\0`), ""},
		{"the folder", list(`f 644 1 .\0\0`), ""},
		{"an absolute path", list(`f 644 1 /tmp/made\0\0`), ""},
		{"half a line", list(`f 644 1 ./made\0`), ""},
		{"no mode", list(`f x 1 ./made\0\0`), ""},
		{"no size", list(`f 644 x ./made\0\0`), ""},
		{"too little", list(`f 644\0\0`), ""},
		{"no archive", list(good), pack(`echo no >../archive`)},
		{"an archive with a path outside", list(good), pack(`echo >../x; tar -czPf ../archive ../x`)},
		{"an archive that is cut", list(good), pack(`head -c 1000000 /dev/urandom >made; tar -cf - made | head -c 5000 | gzip >../archive`)},
	} {
		s := newScene(t, local.New(t.TempDir()))
		write(t, s.Path, "a", "1")
		s.copyIn(t)
		n := 0
		box := &meddler{Sandbox: s.box, exec: func(_ int, c *sandbox.Command) error {
			if n++; n == 1 {
				c.Argv[2] = tt.list
			} else if n <= 3 && tt.pack != "" {
				c.Argv[2] = tt.pack
			}
			return nil
		}}
		if _, err := s.Pull(t.Context(), box); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
		if got := tree(t, filepath.Dir(s.Path)); strings.Contains(got, "made") || !hasLine(got, "folder/a: 1") {
			t.Errorf("%s: there is\n%s", tt.name, got)
		}
	}
	// What was not asked for is not applied, and a link in the archive is no content.
	s := newScene(t, local.New(t.TempDir()))
	write(t, s.Path, "a", "1")
	s.copyIn(t)
	n := 0
	box := &meddler{Sandbox: s.box, exec: func(_ int, c *sandbox.Command) error {
		switch n++; n {
		case 1:
			c.Argv[2] = list(`f 644 1 ./a\0\0f 644 1 ./made\0\0f 644 1 ./link\0\0`)
		case 2, 3:
			c.Argv[2] = pack(`printf x >made; printf x >other; ln -s /etc/passwd link; tar -czf ../archive made other link`)
		}
		return nil
	}}
	if _, err := s.Pull(t.Context(), box); err != nil || tree(t, s.Path) != "a: 1\nmade: x" {
		t.Errorf("%v, there is\n%s", err, tree(t, s.Path))
	}
}
