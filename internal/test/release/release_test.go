// Package release holds what docs/RELEASE.md promises of versions and of the programs of a commit.
package release_test

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Enter()
	os.Exit(m.Run())
}

// clone returns a clone of git with one commit: this working tree, whether that is a clone, or has changes, or not.
func clone(t *testing.T) string {
	t.Helper()
	tree, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "clone")
	output(t, "git", "init", "-q", dir)
	git := []string{"--git-dir=" + dir + "/.git", "-c", "user.name=test", "-c", "user.email=test@example.com"}
	output(t, "git", append(git, "--work-tree="+tree, "add", "-A")...)
	output(t, "git", append(git, "--work-tree="+dir, "commit", "-q", "-m", "This working tree")...)
	output(t, "git", "-C", dir, "reset", "-q", "--hard")
	return dir
}

// output runs a command to its end and returns what it printed on stdout.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	return run(t, exec.Command(name, args...))
}

func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func TestFullReproduce(t *testing.T) {
	dir := clone(t)
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
	dir, proxy := clone(t), t.TempDir()
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

// TestFullDist makes the release for this system in two folders, compares both, and unpacks one.
func TestFullDist(t *testing.T) {
	const targets = "linux/" + runtime.GOARCH
	first := clone(t)
	second := filepath.Join(t.TempDir(), "another")
	output(t, "git", "clone", "-q", first, second)
	sums := output(t, "make", "-s", "-C", first, "dist", "TARGETS="+targets)
	umask := exec.Command("sh", "-c", "umask 077; TZ=Asia/Kathmandu exec make -s -C "+second+" dist TARGETS="+targets)
	if got := run(t, umask); got != sums {
		t.Errorf("another folder has\n%s\nwant\n%s", got, sums)
	}
	dist := filepath.Join(first, "bin/dist")
	check := exec.Command("sha256sum", "--strict", "-c", "SHA256SUMS")
	check.Dir = dist
	if got := run(t, check); strings.Count(got, ": OK") != strings.Count(targets, ",")+1 {
		t.Error(got)
	}
	number, err := os.ReadFile(filepath.Join(first, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(number))
	name := "arbe_" + version + "_linux_" + runtime.GOARCH
	prefix := t.TempDir()
	output(t, "tar", "-xzf", filepath.Join(dist, name+".tar.gz"), "-C", prefix, "--strip-components=1")
	for _, path := range []string{
		"bin/arbe-pi-runner-linux-amd64", "bin/arbe-pi-runner-linux-arm64", "lib/systemd/system/arbe-serve.service",
		"share/doc/arbe/LICENSE", "share/doc/arbe/README.md", "share/man/man1/arbe.1",
		"share/man/man1/arbe-pi-runner.1",
		"share/bash-completion/completions/arbe", "share/zsh/site-functions/_arbe-pi-runner",
	} {
		if _, err := os.Stat(filepath.Join(prefix, path)); err != nil {
			t.Error(err)
		}
	}
	commit := output(t, "git", "-C", first, "rev-parse", "--short=12", "HEAD")
	for _, program := range []string{"arbe", "arbe-pi-runner"} {
		got := output(t, filepath.Join(prefix, "bin", program), "version")
		if want := program + " " + version + "+" + commit + " "; !strings.HasPrefix(got, want) {
			t.Errorf("%s prints %s, want %s…", program, got, want)
		}
	}
	materials(t, prefix, "arbe")
	materials(t, prefix, "arbe-pi-runner")
	listed := output(t, "tar", "--utc", "--full-time", "-tvzf", filepath.Join(dist, name+".tar.gz"))
	made := output(t, "git", "-C", first, "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%d %H:%M:%S")
	for line := range strings.Lines(listed) {
		if !strings.Contains(line, " root/root ") || !strings.Contains(line, " "+made+" ") {
			t.Errorf("%swant root/root, %s", line, made)
		}
	}
	if err := os.WriteFile(filepath.Join(first, "LICENSE"), []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("make", "-s", "-C", first, "dist").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "files differ from the commit") {
		t.Errorf("a changed file: %v, %s", err, out)
	}
}

// materials holds that the bill of a program names all modules that it links, and that their licences are there.
func materials(t *testing.T, prefix, program string) {
	t.Helper()
	docs := filepath.Join(prefix, "share/doc/arbe")
	text, err := os.ReadFile(filepath.Join(docs, program+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	licences, err := os.ReadFile(filepath.Join(docs, "LICENSES.txt"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(filepath.Join(prefix, "bin", program))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"std " + info.GoVersion[2:]}
	for _, m := range info.Deps {
		want = append(want, m.Path+" "+m.Version)
		if !strings.Contains(string(licences), "==== "+m.Path+" "+m.Version+": ") {
			t.Errorf("no licence of %s", m.Path)
		}
	}
	var got []string
	for _, c := range bill.Components {
		got = append(got, c.Name+" "+c.Version)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("materials of %s (-want +got):\n%s", program, diff)
	}
}
