package release_test

import (
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/debian"
)

// tools are the programs that install.sh finds on a small machine, beside a downloader, tar and ssh-keygen.
var tools = []string{
	"sh", "cat", "cp", "cut", "find", "gzip", "id", "mkdir", "mktemp", "mv", "rm", "sed", "sha256sum", "uname",
}

// nobody is the user and group of a machine that are not root.
const nobody = 65534

// machine is a root file system with a few programs.
type machine struct {
	t   *testing.T
	dir string
	url string // of the release's files, which /dist has, too
}

// newMachine makes a machine with the tools and more programs of this one. It has the files of f.
func newMachine(t *testing.T, f files, more ...string) machine {
	t.Helper()
	m := emptyMachine(t, f)
	for _, name := range slices.Concat(tools, more) {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		m.copy(path, "/usr/bin/"+name)
		libraries, err := exec.Command("ldd", path).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", path, err)
		}
		for _, word := range strings.Fields(string(libraries)) {
			if filepath.IsAbs(word) {
				m.copy(word, word)
			}
		}
	}
	return m
}

// emptyMachine makes a machine without programs.
func emptyMachine(t *testing.T, f files) machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a root file system of its own can't be made here: not root")
	}
	m := machine{t: t, dir: t.TempDir()}
	for _, dir := range []string{"etc", "dev", "dist", "home/nobody", "tmp"} {
		m.try(os.MkdirAll(filepath.Join(m.dir, dir), 0o755))
	}
	m.try(os.Chown(filepath.Join(m.dir, "home/nobody"), nobody, nobody))
	m.try(os.Chmod(filepath.Join(m.dir, "tmp"), 0o777))
	m.try(os.Chmod(m.dir, 0o755))
	m.try(os.Symlink("usr/bin", filepath.Join(m.dir, "bin")))
	m.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/home/nobody:/bin/sh\n")
	err := unix.Mknod(filepath.Join(m.dir, "dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	if err != nil {
		t.Skipf("a root file system of its own can't be made here: mknod: %v", err)
	}
	m.try(os.Chmod(filepath.Join(m.dir, "dev/null"), 0o666))
	entries, err := os.ReadDir(f.dir)
	m.try(err)
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, f.archive()) || strings.HasPrefix(name, "SHA") || name == "install.sh" {
			m.copy(filepath.Join(f.dir, name), "/dist/"+name)
		}
	}
	m.copy(f.key, "/dist/key.pub")
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(m.dir, "dist"))))
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

func (m machine) try(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) write(name, text string) {
	m.t.Helper()
	m.try(os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o644))
}

func (m machine) read(name string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.dir, name))
	m.try(err)
	return string(b)
}

// copy copies a file of this machine.
func (m machine) copy(from, name string) {
	m.t.Helper()
	to := filepath.Join(m.dir, name)
	b, err := os.ReadFile(from)
	m.try(err)
	m.try(os.MkdirAll(filepath.Dir(to), 0o755))
	m.try(os.WriteFile(to, b, 0o755))
}

// as returns a command of the machine for a user.
func (m machine) as(user uint32, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), name, args...)
	cmd.Path, cmd.Err = name, nil // a path there
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.dir, Credential: &syscall.Credential{Uid: user, Gid: user}}
	cmd.Dir = "/"
	home := map[uint32]string{0: "/root", nobody: "/home/nobody"}[user]
	cmd.Env = append([]string{"PATH=/usr/bin", "HOME=" + home}, env...)
	return cmd
}

// install runs install.sh, with settings like PREFIX=…, and returns what it printed.
func (m machine) install(user uint32, env []string, args ...string) (string, error) {
	out, err := m.as(user, env, "/usr/bin/sh", append([]string{"/dist/install.sh"}, args...)...).CombinedOutput()
	return string(out), err
}

// tree returns the files below a folder of the machine by name, with their mode, size and inode.
func (m machine) tree(folder string) map[string]string {
	m.t.Helper()
	all := map[string]string{}
	top := filepath.Join(m.dir, folder)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(top, path)
		all[rel] = fmt.Sprint(info.Mode(), info.Size(), info.Sys().(*syscall.Stat_t).Ino)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		m.t.Fatal(err)
	}
	return all
}

// holdsRelease checks that prefix has what is in the archive, nothing else, and that no temporary file is left.
func (m machine) holdsRelease(f files, prefix string) {
	m.t.Helper()
	want := slices.Sorted(maps.Keys(machine{m.t, "/", ""}.tree(unpacked(m.t, f))))
	got := slices.Sorted(maps.Keys(m.tree(prefix)))
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Errorf("%s (-archive +installed):\n%s", prefix, diff)
	}
	if left := m.tree("/tmp"); len(left) > 0 {
		m.t.Errorf("left in /tmp: %v", left)
	}
	out, err := m.as(nobody, nil, prefix+"/bin/arbe", "version").CombinedOutput()
	if want := "arbe " + f.version + "+" + f.commit[:12]; err != nil || !strings.HasPrefix(string(out), want) {
		m.t.Errorf("%v, %s, want %s", err, out, want)
	}
	unit := m.read(prefix + "/lib/systemd/system/arbe-serve.service")
	if !strings.Contains(unit, "="+prefix+"/bin/arbe ") {
		m.t.Errorf("the unit runs another program:\n%s", unit)
	}
}

// TestFullInstall installs the archive on a machine that has curl and tar, and on others that have less.
func TestFullInstall(t *testing.T) {
	t.Parallel()
	f := released(t)
	t.Run("folder", func(t *testing.T) {
		m := newMachine(t, f, "tar")
		out, err := m.install(0, nil, "/dist")
		if err != nil {
			t.Fatalf("%v, %s", err, out)
		}
		for _, want := range []string{"installed arbe " + f.version, "nobody has checked", "/bin is not in PATH"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s, want %s", out, want)
			}
		}
		m.holdsRelease(f, "/usr/local")
	})
	t.Run("address", func(t *testing.T) {
		m := newMachine(t, f, "tar", "curl", "ssh-keygen")
		for range 2 { // the second replaces all files
			before := m.tree("/home/nobody/.local")
			path := "PATH=/usr/bin:/home/nobody/.local/bin"
			out, err := m.install(nobody, []string{path}, "--key", "/dist/key.pub", m.url+"/")
			if err != nil || !strings.Contains(out, "signed by a key of /dist/") || strings.Contains(out, "PATH") {
				t.Fatalf("%v, %s", err, out)
			}
			m.holdsRelease(f, "/home/nobody/.local")
			for name, file := range m.tree("/home/nobody/.local") {
				if file == before[name] {
					t.Errorf("%s was not replaced", name)
				}
			}
		}
	})
	t.Run("wget", func(t *testing.T) {
		m := newMachine(t, f, "tar", "wget")
		if out, err := m.install(0, []string{"PREFIX=/opt/arbe/"}, m.url); err != nil {
			t.Fatalf("%v, %s", err, out)
		}
		m.holdsRelease(f, "/opt/arbe")
	})
	t.Run("busybox", func(t *testing.T) {
		lower, err := debian.Find("busybox")
		if err != nil {
			t.Skipf("busybox can't run here: %v", err)
		}
		m := emptyMachine(t, f)
		m.copy(lower.Program("busybox"), "/usr/bin/sh")
		for _, name := range slices.Concat(tools, []string{"tar", "wget"}) {
			if name != "sh" {
				m.try(os.Symlink("sh", filepath.Join(m.dir, "usr/bin", name)))
			}
		}
		if out, err := m.install(nobody, nil, m.url); err != nil {
			t.Fatalf("%v, %s", err, out)
		}
		m.holdsRelease(f, "/home/nobody/.local")
	})
}

// What can't be installed leaves the machine as it was, and the error names the reason.
func TestFullInstallRefused(t *testing.T) {
	t.Parallel()
	f := released(t)
	m := newMachine(t, f, "tar", "curl", "ssh-keygen")
	archive := f.archive() + ".tar.gz"
	sums, whole := m.read("/dist/SHA256SUMS"), m.read("/dist/"+archive)
	cutting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".tar.gz") {
			http.ServeFile(w, r, filepath.Join(m.dir, "dist", filepath.Base(r.URL.Path)))
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)))
		_, _ = w.Write([]byte(whole[:len(whole)/2])) // the connection is closed, as by a server that dies
	}))
	defer cutting.Close()
	other := filepath.Join(t.TempDir(), "other")
	output(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other)
	m.copy(other+".pub", "/dist/other.pub")
	m.try(os.MkdirAll(filepath.Join(m.dir, "half/bin"), 0o755))
	m.try(os.Chown(filepath.Join(m.dir, "half"), nobody, nobody))
	uname := func(system, processor string) string {
		return "#!/bin/sh\n[ $1 = -s ] && echo " + system + " || echo " + processor + "\n"
	}
	for name, c := range map[string]struct {
		user  uint32
		env   []string
		args  []string
		files map[string]string // written before; "": removed
		want  string
	}{
		"no release":        {args: []string{}, want: "usage: "},
		"unknown flag":      {args: []string{"--sudo", "/dist"}, want: "usage: "},
		"not an address":    {args: []string{"ftp://localhost"}, want: "want https://…, http://… or a folder"},
		"no folder":         {args: []string{"/nowhere"}, want: "/nowhere has no SHA256SUMS"},
		"not found":         {args: []string{m.url + "/nowhere"}, want: m.url + "/nowhere/SHA256SUMS can't be downloaded"},
		"relative prefix":   {env: []string{"PREFIX=opt"}, args: []string{"/dist"}, want: "want a path that begins with /"},
		"prefix with space": {env: []string{"PREFIX=/opt/a b"}, args: []string{"/dist"}, want: "can't have such a path"},
		"processor": {
			args: []string{"/dist"}, want: "no archive for the processor riscv64",
			files: map[string]string{"/usr/bin/uname": uname("Linux", "riscv64")},
		},
		"system": {
			args: []string{"/dist"}, want: "no archive for the system FreeBSD",
			files: map[string]string{"/usr/bin/uname": uname("FreeBSD", "amd64")},
		},
		"no archive": {
			args: []string{"/dist"}, want: "/dist/SHA256SUMS has no archive for darwin_arm64",
			files: map[string]string{"/usr/bin/uname": uname("Darwin", "arm64")},
		},
		"damaged": {
			args: []string{"/dist"}, want: archive + " is damaged: its SHA-256 is ",
			files: map[string]string{"/dist/" + archive: whole[:1000] + string(whole[1000]^1) + whole[1001:]},
		},
		"truncated": {
			args: []string{m.url}, want: archive + " is damaged: its SHA-256 is ",
			files: map[string]string{"/dist/" + archive: whole[:len(whole)/2]},
		},
		"cut off": {args: []string{cutting.URL}, want: cutting.URL + "/" + archive + " can't be downloaded"},
		"no archive, but its sum": {
			args: []string{m.url}, want: "/" + archive + " can't be downloaded",
			files: map[string]string{"/dist/" + archive: ""},
		},
		"changed sums": {
			args: []string{"--key", "/dist/key.pub", "/dist"}, want: "is not by a key of /dist/key.pub: ",
			files: map[string]string{"/dist/SHA256SUMS": sums + "\n"},
		},
		"another key": {args: []string{"--key", "/dist/other.pub", "/dist"}, want: "is not by a key of /dist/other.pub: "},
		"no key":      {args: []string{"--key", "/no.pub", "/dist"}, want: "/no.pub, which --key names, can't be read"},
		"no signature": {
			args: []string{"--key", "/dist/key.pub", "/dist"}, want: "/dist has no SHA256SUMS.sig",
			files: map[string]string{"/dist/SHA256SUMS.sig": ""},
		},
		"no ssh-keygen": {
			args: []string{"--key", "/dist/key.pub", "/dist"}, want: "ssh-keygen (OpenSSH 8.1 or newer) is needed",
			files: map[string]string{"/usr/bin/ssh-keygen": ""},
		},
		"no sums": {
			args: []string{"/dist"}, want: "sha256sum or shasum is needed",
			files: map[string]string{"/usr/bin/sha256sum": ""},
		},
		"no downloader": {
			args: []string{m.url}, want: "curl or wget is needed", files: map[string]string{"/usr/bin/curl": ""},
		},
		"no permission": {
			user: nobody, env: []string{"PREFIX=/usr/local"}, args: []string{"/dist"},
			want: "/usr/local can't be written: run this as a user who may, or set PREFIX",
		},
		"no permission below": {
			user: nobody, env: []string{"PREFIX=/half"}, args: []string{"/dist"}, want: "/half/bin can't be written",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine{t, m.dir, m.url}
			for name, text := range c.files {
				path := filepath.Join(m.dir, name)
				aside := path + ".aside"
				m.try(os.Rename(path, aside))
				if text != "" {
					m.try(os.WriteFile(path, []byte(text), 0o755))
				}
				defer func() { m.try(os.Rename(aside, path)) }()
			}
			before := m.tree("/")
			out, err := m.install(c.user, c.env, c.args...)
			if err == nil || !strings.Contains(out, "install.sh: ") || !strings.Contains(out, c.want) {
				t.Errorf("%v, %s, want %s", err, out, c.want)
			}
			if diff := cmp.Diff(before, m.tree("/")); diff != "" {
				t.Errorf("the machine (-before +after):\n%s", diff)
			}
		})
	}
}
