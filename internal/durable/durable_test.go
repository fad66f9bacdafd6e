package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"arbe.0sk.ar/runner/internal/durable"
)

// TestWrite covers files and folders: a write that fails leaves the file as it was, and no other file beside it.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b", "c")
	if err := durable.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := durable.MkdirAll(dir); err != nil {
		t.Errorf("again: %v", err)
	}
	path := filepath.Join(dir, "f")
	if err := durable.WriteFile(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := durable.Write(path, iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if err := durable.Rename(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(names) != 0 {
		t.Errorf("left: %q, %v", names, err)
	}
	if b, err := os.ReadFile(path + "2"); string(b) != "one" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if st, err := os.Stat(path + "2"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := durable.MkdirAll(path + "2"); err == nil {
		t.Error("a folder in place of a file")
	}
	if err := durable.MkdirAll(filepath.Join(path+"2", "below")); err == nil {
		t.Error("a folder below a file")
	}
}
