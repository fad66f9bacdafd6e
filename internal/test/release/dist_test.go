package release_test

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// target is the one system that the tests make a release for.
const target = "linux/" + runtime.GOARCH

// files are a release of this working tree.
type files struct {
	clone   string // the source, with its programs in bin
	dir     string // the files
	key     string // the public key that has signed them
	sums    string // what make dist printed
	version string
	commit  string
}

// archive returns the name of the archive, without its ending.
func (f files) archive() string { return "arbe_" + f.version + "_linux_" + runtime.GOARCH }

// packaged returns the version as packages have it: what is before a release sorts before it.
func (f files) packaged() string { return strings.Replace(f.version, "-", "~", 1) }

// deb, rpm and image return the names of the packages and of the image for docker load.
func (f files) deb() string   { return "arbe_" + f.packaged() + "_" + runtime.GOARCH + ".deb" }
func (f files) image() string { return "arbe_" + f.version + "_image_" + runtime.GOARCH + ".tar" }
func (f files) rpm() string {
	processor := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return "arbe-" + f.packaged() + "-1." + processor + ".rpm"
}

// made makes a release, once for all tests.
var made = sync.OnceValues(func() (f files, err error) {
	dir, err := os.MkdirTemp("", "release-") // surroundings removes it
	if err != nil {
		return f, err
	}
	f.clone, f.key = filepath.Join(dir, "clone"), filepath.Join(dir, "key.pub")
	f.dir = filepath.Join(f.clone, "bin/dist")
	if err := clone(f.clone); err != nil {
		return f, err
	}
	key := filepath.Join(dir, "key")
	if _, err := printed(exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)); err != nil {
		return f, err
	}
	f.sums, err = printed(exec.Command("make", "-s", "-C", f.clone, "dist", "TARGETS="+target, "KEY="+key))
	if err != nil {
		return f, err
	}
	number, err := os.ReadFile(filepath.Join(f.clone, "VERSION"))
	if err != nil {
		return f, err
	}
	f.version = strings.TrimSpace(string(number))
	f.commit, err = printed(exec.Command("git", "-C", f.clone, "rev-parse", "HEAD"))
	return f, err
})

// released returns the release of all tests, which they must not change.
func released(t *testing.T) files {
	t.Helper()
	f, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// unpacked returns a folder that has what is in the archive.
func unpacked(t *testing.T, f files) string {
	t.Helper()
	dir := t.TempDir()
	output(t, "tar", "-xzf", filepath.Join(f.dir, f.archive()+".tar.gz"), "-C", dir, "--strip-components=1")
	return dir
}

// Another folder, umask and time zone make the same files, and files that differ from the commit make none.
func TestFullDist(t *testing.T) {
	t.Parallel()
	first := released(t)
	second := filepath.Join(t.TempDir(), "another")
	output(t, "git", "clone", "-q", first.clone, second)
	umask := exec.Command("sh", "-c", "umask 077; TZ=Asia/Kathmandu exec make -s -C "+second+" dist TARGETS="+target)
	if diff := cmp.Diff(first.sums, run(t, umask)); diff != "" {
		t.Errorf("another folder (-first +another):\n%s", diff)
	}
	check := exec.Command("sha256sum", "--strict", "-c", "SHA256SUMS")
	check.Dir = first.dir
	got := run(t, check)
	for _, name := range []string{
		first.archive() + ".tar.gz", first.deb(), first.rpm(), first.image(), "arbe_" + first.version + "_image.tar",
		"install.sh",
	} {
		if !strings.Contains(got, name+": OK") {
			t.Errorf("no %s in\n%s", name, got)
		}
	}
	if n := strings.Count(got, ": OK"); n != 6 {
		t.Errorf("%d files, want 6", n)
	}
	if err := os.WriteFile(filepath.Join(second, "LICENSE"), []byte("another"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("make", "-s", "-C", second, "dist").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "files differ from the commit") {
		t.Errorf("a changed file: %v, %s", err, out)
	}
}

// The archive has all that belongs below a prefix, from the time of the commit.
func TestFullArchive(t *testing.T) {
	t.Parallel()
	f := released(t)
	prefix := unpacked(t, f)
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
	for _, program := range []string{"arbe", "arbe-pi-runner"} {
		got := output(t, filepath.Join(prefix, "bin", program), "version")
		if want := program + " " + f.version + "+" + f.commit[:12] + " "; !strings.HasPrefix(got, want) {
			t.Errorf("%s prints %s, want %s…", program, got, want)
		}
	}
	programs, err := os.ReadDir(filepath.Join(prefix, "bin"))
	if err != nil || len(programs) != 4 {
		t.Fatal(programs, err)
	}
	for _, p := range programs {
		materials(t, prefix, p.Name())
	}
	listed := output(t, "tar", "--utc", "--full-time", "-tvzf", filepath.Join(f.dir, f.archive()+".tar.gz"))
	at := output(t, "git", "-C", f.clone, "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%d %H:%M:%S")
	for line := range strings.Lines(listed) {
		if !strings.Contains(line, " root/root ") || !strings.Contains(line, " "+at+" ") {
			t.Errorf("%swant root/root, %s", line, at)
		}
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
