package dockerd_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/debian"
	"arbe.0sk.ar/runner/internal/test/dockerd"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Enter()
	os.Exit(m.Run())
}

// busybox returns an image for docker import: a file system with a shell.
func busybox(t *testing.T) *bytes.Buffer {
	t.Helper()
	root, err := debian.Find("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(root.Program("busybox"))
	if err != nil {
		t.Fatal(err)
	}
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	if err := w.WriteHeader(&tar.Header{Name: "bin/sh", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &image
}

// Two engines know nothing of each other, and leave no container's process, cgroup or file.
func TestFullEngines(t *testing.T) {
	for _, name := range []string{"one", "another"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := dockerd.Start()
			var missing *dockerd.MissingError
			if errors.As(err, &missing) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			docker := func(input *bytes.Buffer, args ...string) string {
				t.Helper()
				cmd := e.Command(t.Context(), args...)
				if input != nil {
					cmd.Stdin = input
				}
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("docker %s: %v\n%s\n%s", strings.Join(args, " "), err, out, e.Log())
				}
				return strings.TrimSpace(string(out))
			}
			docker(busybox(t), "import", "-", "shell")
			docker(nil, "run", "-dit", "--name", "box", "--network", "host", "shell", "sh")
			if got := docker(nil, "exec", "box", "sh", "-c", "echo $((40+2))"); got != "42" {
				t.Errorf("got %s", got)
			}
			if got := docker(nil, "ps", "--format", "{{.Names}}"); got != "box" {
				t.Errorf("containers %s", got)
			}
			dir := filepath.Dir(e.Socket())
			if err := e.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its folder is left: %v", err)
			}
			if left, err := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir)); err != nil || left != nil {
				t.Errorf("cgroups are left: %v, %v", left, err)
			}
		})
	}
}
