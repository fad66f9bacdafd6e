// Package release holds what docs/RELEASE.md promises: of versions, of the programs of a commit, of the files of a
// release, and of each way to install them.
package release_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Enter()
	os.Exit(m.Run())
}

// clone makes a clone of git with one commit in dir: this working tree, whether that is a clone, or has changes, or
// not.
func clone(dir string) error {
	tree, err := filepath.Abs("../../..")
	if err != nil {
		return err
	}
	git := []string{"--git-dir=" + dir + "/.git", "-c", "user.name=test", "-c", "user.email=test@example.com"}
	for _, args := range [][]string{
		{"init", "-q", dir},
		append(git, "--work-tree="+tree, "add", "-A"),
		append(git, "--work-tree="+dir, "commit", "-q", "-m", "This working tree"),
		{"-C", dir, "reset", "-q", "--hard"},
	} {
		if _, err := printed(exec.Command("git", args...)); err != nil {
			return err
		}
	}
	return nil
}

// cloned returns the folder of a clone for one test.
func cloned(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	if err := clone(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// output runs a command to its end and returns what it printed on stdout.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	return run(t, exec.Command(name, args...))
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := printed(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// printed runs a command to its end and returns what it printed on stdout.
func printed(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", cmd, err, out, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

func TestFullReproduce(t *testing.T) {
	dir := cloned(t)
	version, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	head := output(t, "git", "-C", dir, "rev-parse", "--short=12", "HEAD")
	got := output(t, "make", "-s", "-C", dir, "reproduce")
	if want := "arbe " + strings.TrimSpace(string(version)) + "+" + head + " go1"; !strings.HasPrefix(got, want) {
		t.Errorf("a source archive prints %s; want %s…", got, want)
	}
	if n := strings.Count(got, "  arbe"); n != 4 {
		t.Errorf("%d sums in %s, want 4", n, got)
	}
}

// TestFullGoInstall installs a program from a module proxy, as go install does from the public one.
func TestFullGoInstall(t *testing.T) {
	const path, version = "arbe.0sk.ar/runner", "v0.1.1-rc.1"
	dir, proxy := cloned(t), t.TempDir()
	at := filepath.Join(proxy, path, "@v")
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err == nil {
		err = os.MkdirAll(at, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": version + "\n", version + ".info": `{"Version":"` + version + `"}`, version + ".mod": string(mod),
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromVCS(archive, module.Version{Path: path, Version: version}, dir, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}

	// The cache of modules is a proxy for all others, and stays as it is.
	others := "file://" + output(t, "go", "env", "GOMODCACHE") + "/cache/download," + output(t, "go", "env", "GOPROXY")
	cmd := exec.Command("go", "install", path+"/cmd/arbe-pi-runner@"+version)
	bin := t.TempDir()
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw -trimpath",
		"GOSUMDB=off", "GOPROXY=file://"+proxy+","+others, "CGO_ENABLED=0")
	run(t, cmd)
	program := filepath.Join(bin, "arbe-pi-runner")
	if got, want := output(t, program, "version"), "arbe-pi-runner "+version[1:]+" go1"; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s…", got, want)
	}
	var build struct{ Version string }
	if err := json.Unmarshal([]byte(output(t, program, "version", "--json")), &build); err != nil {
		t.Fatal(err)
	}
	if build.Version != version[1:] {
		t.Errorf("version %s, want %s", build.Version, version[1:])
	}
}
