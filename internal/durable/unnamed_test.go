package durable_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/internal/durable"
)

// TestUnnamed covers a file that gets its name when it is complete: it replaces the file of that name, and nobody sees
// it before.
func TestUnnamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := durable.WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	f, err := durable.Unnamed(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("new"); err != nil {
		t.Fatal(err)
	}
	names := func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := names(); len(got) != 1 {
		t.Errorf("before it has a name: %q", got)
	}
	err = durable.Name(f, path)
	switch b, readErr := os.ReadFile(path); {
	case errors.Is(err, durable.ErrCopy) && string(b) == "old":
		t.Skip("the file system of the tests' folders can't give a file its name")
	case err != nil || readErr != nil || string(b) != "new":
		t.Errorf("got %q, %v, %v", b, err, readErr)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := durable.Name(f, filepath.Join(dir, "none", "f")); !errors.Is(err, durable.ErrCopy) {
		t.Errorf("in a folder that is missing: %v", err)
	}
	if err := os.Mkdir(path+"2", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Name(f, path+"2"); err == nil {
		t.Error("in place of a folder")
	}
	if got := names(); len(got) != 2 {
		t.Errorf("left: %q", got)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
