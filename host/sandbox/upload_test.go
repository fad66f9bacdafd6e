package sandbox_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
)

func TestUpload(t *testing.T) {
	each(t, func(t *testing.T, h *house) {
		b := h.create(t, sandbox.Options{})
		big := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
		files := []sandbox.File{
			{Path: "a/b/it's a file", Content: strings.NewReader("one"), Size: 3},
			{Path: "bin/x", InHome: true, Content: bytes.NewReader(big), Size: int64(len(big)), Mode: 0o755},
			{Path: "empty", Mode: 0o600},
		}
		if err := b.Upload(t.Context(), files...); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			path, content string
			mode          fs.FileMode
		}{{b.WorkDir() + "/a/b/it's a file", "one", 0o644}, {b.Home() + "/bin/x", string(big), 0o755}, {b.WorkDir() + "/empty", "", 0o600}} {
			got, err := os.ReadFile(want.path)
			if err != nil || string(got) != want.content {
				t.Errorf("%s: %d bytes, %v", want.path, len(got), err)
			}
			if fi, err := os.Stat(want.path); err != nil || fi.Mode().Perm() != want.mode {
				t.Errorf("%s: %v, %v", want.path, fi.Mode(), err)
			}
		}
		// A program that runs is written over.
		sleep, err := os.ReadFile("/bin/sleep")
		if err != nil {
			t.Fatal(err)
		}
		put := func() error {
			return b.Upload(t.Context(), sandbox.File{
				Path: "sleep", InHome: true, Content: bytes.NewReader(sleep),
				Size: int64(len(sleep)), Mode: 0o755,
			})
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Detach(t.Context(), sandbox.Command{Argv: []string{b.Home() + "/sleep", "1000"}}, "log"); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Error(err)
		}
		// What comes short, or breaks, changes nothing.
		for _, bad := range []sandbox.File{
			{Path: "empty", Content: strings.NewReader("short"), Size: 10},
			{Path: "empty", Content: strings.NewReader("long"), Size: 1},
			{Path: "empty", Content: broken{}, Size: 1 << 20},
		} {
			if err := b.Upload(t.Context(), sandbox.File{Path: "new", Content: strings.NewReader("x"), Size: 1},
				bad); err == nil {
				t.Errorf("uploaded %v", bad)
			}
		}
		before := h.asked()
		var confined *sandbox.ConfinedError
		for _, f := range []sandbox.File{{Path: "../x"}, {Path: "/etc/x"}, {Path: ""}, {Path: "a/.."}, {Path: "a/"}, {Path: "../workspace-x"}, {Path: "../x", InHome: true}} {
			if err := b.Upload(t.Context(), sandbox.File{Path: "new"}, f); !errors.As(err, &confined) {
				t.Errorf("%q: %v", f.Path, err)
			}
		}
		if got := h.asked(); got != before {
			t.Errorf("%d requests were sent", got-before)
		}
		left := strings.Fields(string(run(t, b, "ls -A").Stdout))
		if want := []string{"a", "empty"}; !slices.Equal(left, want) || read(b.WorkDir()+"/empty") != "" {
			t.Errorf("in the working directory: %v, want %v", left, want)
		}
	})
}

// broken is content that can't be read to its end.
type broken struct{}

func (broken) Read(b []byte) (int, error) {
	if len(b) > 100 {
		return 100, errors.New("the disk is broken")
	}
	return 0, errors.New("the disk is broken")
}
