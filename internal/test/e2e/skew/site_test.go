package skew_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/output"
	"arbe.0sk.ar/runner/internal/test/port"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// secret signs all tokens.
const secret = "a-secret-of-thirty-two-bytes-and-more"

// process is a program that lasts until it is ended.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	log output.Buffer
	end func() // by TERM, after which it must exit with 0
}

// lasting starts a program. It ends with the test at the latest.
func lasting(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd}
	cmd.Stderr = &p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.end = sync.OnceFunc(func() {
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
		if err != nil || t.Failed() {
			t.Errorf("%v: %v\n%.20000s", cmd.Args, err, &p.log)
		}
	})
	t.Cleanup(p.end)
	return p
}

// site is a data folder with its server, whose version changes.
type site struct {
	t      *testing.T
	dir    string // home of all programs
	addr   string // the same for all servers
	env    []string
	server *process
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), addr: port.Reserve(t)}
	s.env = []string{
		"HOME=" + s.dir, "PATH=" + os.Getenv("PATH"), "DURABLE_STREAMS_SECRET=" + secret,
		"ARBE_DATA=" + filepath.Join(s.dir, "data"), "ARBE_STREAM_URL=http://" + s.addr, "GORACE=atexit_sleep_ms=0",
	}
	return s
}

// serve starts a server of a version, and waits until it serves.
func (s *site) serve(v version, flags ...string) {
	s.t.Helper()
	address := filepath.Join(s.dir, "data", "address")
	if err := os.Remove(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	args := append([]string{"serve", "--addr", s.addr, "--reconcile=false"}, flags...)
	s.server = lasting(s.t, s.command(v, args...))
	until(s.t, "a server", func() bool {
		b, err := os.ReadFile(address)
		return err == nil && len(b) > 0
	})
}

// replace ends the server, and starts one of another version on the same data and address.
func (s *site) replace(v version, flags ...string) {
	s.t.Helper()
	s.server.end()
	s.serve(v, flags...)
}

// command is arbe of a version.
func (s *site) command(v version, args ...string) *exec.Cmd {
	cmd := exec.Command(v.arbe(), args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	return cmd
}

// try runs arbe of a version, and returns what it prints and its exit status.
func (s *site) try(v version, args ...string) (out string, status int) {
	s.t.Helper()
	return result(s.command(v, args...))
}

// result runs a command to its end, and returns what it prints and its exit status; -1 where it can't be run.
func result(cmd *exec.Cmd) (out string, status int) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return stdout.String() + stderr.String(), failed.ExitCode()
	} else if err != nil {
		return err.Error(), -1
	}
	return strings.TrimSpace(stdout.String()), 0
}

// arbe runs arbe of a version, which must succeed, and returns its stdout.
func (s *site) arbe(v version, args ...string) string {
	s.t.Helper()
	out, status := s.try(v, args...)
	if status != 0 {
		s.t.Fatalf("%s: arbe %v: status %d\n%s", v.name, args, status, out)
	}
	return out
}

// entries returns those of a thread.
func (s *site) entries(id string) (all []thread.Entry) {
	s.t.Helper()
	c := &client.Client{
		Base: thread.BaseURL("http://" + s.addr), Thread: id, Token: client.StaticToken(mint(s.t, id)),
	}
	_, err := c.Read(s.t.Context(), "0", false, func(e thread.Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil && !client.NotFound(err) {
		s.t.Fatal(err)
	}
	return all
}
