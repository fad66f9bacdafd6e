package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Packages have the same bytes whenever and from wherever their files come.
func TestPackages(t *testing.T) {
	t.Chdir("../..")
	at := time.Date(2026, 11, 24, 1, 2, 4, 0, time.UTC)
	var made [2]map[string][]byte
	for i := range made {
		r := release{version: "1.2.3-dev", time: at, work: t.TempDir()}
		from, out := filepath.Join(t.TempDir(), "built"), t.TempDir()
		if err := os.WriteFile(from, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(from, time.Time{}, at.Add(time.Duration(i)*time.Hour)); err != nil {
			t.Fatal(err)
		}
		files := []file{{"bin/arbe", from, 0o755}, {"share/man/man1/arbe.1", from, 0o644}}
		if err := r.packages(out, "arm64", files); err != nil {
			t.Fatal(err)
		}
		made[i] = map[string][]byte{}
		for _, name := range []string{"arbe_1.2.3~dev_arm64.deb", "arbe-1.2.3~dev-1.aarch64.rpm"} {
			b, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			made[i][name] = b
		}
	}
	for name, b := range made[0] {
		if !bytes.Equal(b, made[1][name]) {
			t.Errorf("two different packages: %s", name)
		}
	}
}

// A unit in a package runs the package's program, and its header has no commands for what the package does.
func TestUnit(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) == 0 {
		t.Fatal(units, err)
	}
	for _, path := range units {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		after, err := unit(before)
		if err != nil {
			t.Fatal(err)
		}
		text := string(after)
		_, settings, _ := strings.Cut(string(before), "\n\n")
		want := strings.ReplaceAll(settings, "/usr/local/bin/arbe", "/usr/bin/arbe")
		if !strings.HasSuffix(text, "\n\n"+want) {
			t.Errorf("%s has other settings:\n%s", path, text)
		}
		for _, not := range []string{"/usr/local", "deploy/", "useradd", "#\n#\n"} {
			if strings.Contains(text, not) {
				t.Errorf("%s has %q:\n%s", path, not, text)
			}
		}
	}
}
