package release_test

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// root is a root file system of a test's own: this machine's, over which the test may write, remove and install
// anything. It sees two more folders: /dist with the files of the release, and maybe /lower.
type root struct {
	t   *testing.T
	dir string
	pid int // of a process in its mount namespace
}

// mounts makes a root file system in the folder $0, with the folder $1 as /dist and $2, if there is one, as /lower. It
// keeps the namespace until its input ends.
const mounts = `set -e
mount --make-rprivate /
mount -t tmpfs none "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" none "$0/root"
echo mounted
for dir in dev proc sys; do mount --rbind /$dir "$0/root/$dir"; done
mount -t tmpfs none "$0/root/run"
mount -t tmpfs none "$0/root/tmp"
mkdir "$0/root/dist" "$0/root/lower"
mount --bind "$1" "$0/root/dist"
[ -z "$2" ] || mount --bind "$2" "$0/root/lower"
echo ready
read end`

// newRoot makes a root file system, which ends with the test.
func newRoot(t *testing.T, dist, lower string) *root {
	t.Helper()
	r := &root{t: t, dir: t.TempDir()}
	cmd := exec.Command("sh", "-c", mounts, r.dir, dist, lower)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("a root file system of its own can't be made here: %v", err)
	}
	r.pid = cmd.Process.Pid
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Skipf("a root file system of its own can't be made here: %v %s", cmd.Wait(), stderr.String())
	}
	if !lines.Scan() {
		t.Fatalf("after the overlay: %v %s", cmd.Wait(), stderr.String())
	}
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // read fails at the end of its input
	})
	return r
}

// try runs a script of sh in the root file system, and returns what it printed, errors too.
func (r *root) try(script string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), "nsenter", "-t", strconv.Itoa(r.pid), "-m",
		"chroot", filepath.Join(r.dir, "root"), "sh", "-ec", script)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "LC_ALL=C.UTF-8", "TZ=UTC",
		"DEBIAN_FRONTEND=noninteractive",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run is try for a script that has to succeed.
func (r *root) run(script string) string {
	r.t.Helper()
	out, err := r.try(script)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// holds runs a script, and fails the test where it ends with an error.
func (r *root) holds(script string) {
	r.t.Helper()
	if out, err := r.try(script); err != nil {
		r.t.Errorf("%s: %v\n%s", script, err, out)
	}
}
