package harness_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/nosyscall"
	"arbe.0sk.ar/runner/outcome"
)

// freezer makes a cgroup (v1) that holds its processes still, KILL or not. A v2 group that is frozen lets KILL through.
func freezer(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join("/sys/fs/cgroup/freezer", "arbe-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("NOT RUN: this kernel has no v1 freezer that a test may use: %v", err)
	}
	t.Cleanup(func() {
		for os.Remove(dir) != nil && t.Context().Err() == nil {
			time.Sleep(5 * time.Millisecond) // until it is empty
		}
	})
	return dir
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// An agent that KILL does not end is waited for only so long. How it ended is not known.
func TestUnkillable(t *testing.T) {
	dir := freezer(t)
	p, _ := start(t, "exec sleep 60", "")
	put(t, filepath.Join(dir, "cgroup.procs"), strconv.Itoa(p.PID()))
	put(t, filepath.Join(dir, "freezer.state"), "FROZEN")
	var sent []syscall.Signal
	note := func(s syscall.Signal) { sent = append(sent, s) }
	ended := p.Stop(t.Context(), syscall.SIGTERM, 50*time.Millisecond, note)
	p.Release() // does not wait
	if ended || p.Exit().Known || len(sent) != 2 {
		t.Errorf("ended %v with %v after %v", ended, p.Exit(), sent)
	}
	put(t, filepath.Join(dir, "freezer.state"), "THAWED")
	if got := wait(p); !got.Known || got.Signal == 0 {
		t.Errorf("thawed, it ended with %v", got)
	}
}

// A kernel without pidfd_open has processes that can be adopted and ended anyway.
func TestNoPidfd(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			p, _ := start(t, "exec sleep 60", "")
			st, err := procfs.Read(p.PID())
			if err != nil {
				t.Fatal(err)
			}
			type adopted struct {
				a   *harness.Process
				err error
			}
			came, checked := make(chan adopted), make(chan struct{})
			tree := harness.Tree{Roots: []int{p.PID()}}
			go func() {
				runtime.LockOSThread() // and never unlocked: the thread ends with its filter
				if err := nosyscall.Deny(errno, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL); err != nil {
					t.Logf("NOT RUN without pidfd_open: %v", err)
				}
				learn := func() (outcome.Exit, bool) { return outcome.ExitCode(7), true }
				a, err := harness.Adopt(p.PID(), st.Started, learn)
				came <- adopted{a, err}
				<-checked
				if found, left := tree.End(t.Context(), time.Second); found != 1 || left != 0 {
					t.Errorf("found %d, left %d", found, left)
				}
				came <- adopted{}
			}()
			got := <-came
			if got.err != nil {
				t.Fatal(got.err)
			}
			select {
			case <-got.a.Done():
				t.Error("its end came while it ran")
			default:
			}
			close(checked)
			<-came
			if exit := wait(got.a); exit != outcome.ExitCode(7) {
				t.Errorf("got %v", exit)
			}
			wait(p)
		})
	}
}

// A start that fails because the machine has no room now may be tried again; no other may.
func TestBusy(t *testing.T) {
	_, missing := harness.Start(harness.Command{Path: "/no/such/agent", Dir: t.TempDir()})
	for err, want := range map[error]bool{
		&os.SyscallError{Syscall: "fork/exec", Err: syscall.EAGAIN}: true,
		&os.PathError{Op: "exec", Path: "/a", Err: syscall.ETXTBSY}: true,
		harness.ErrNotReady:  true,
		missing:              false,
		errors.New("EAGAIN"): false,
	} {
		if got := harness.Busy(err); got != want {
			t.Errorf("%v: busy %v, want %v", err, got, want)
		}
	}
}
