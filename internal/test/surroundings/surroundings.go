// Package surroundings gives a test program surroundings of its own, and ends with it whatever its tests have started.
//
// What a shell hands down differs from one machine to the next: ignored signals (nohup, a job in the background), the
// umask, locale, time zone, home folder, variables of git and of the programs under test. The tests of a program whose
// TestMain calls Enter run without any of it, in a process of their own:
//
//	relay   the process that go test has started: it passes signals on to the tests, and exits with their status
//	guard   a child of the relay, in a session of its own, and the subreaper of all below: it has every process that
//	        the tests start among its descendants, whatever that process detaches itself from
//	tests   a child of the guard
//
// When the tests have ended, or the relay is gone, the guard kills all of its descendants and removes the tests' folder
// for temporary files. The relay is gone with go test, and a KILL of go test's process group leaves the guard.
//
// The variable TEST_SURROUNDINGS=own turns all of it off, for a debugger.
package surroundings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// roleVar names the variable with the role of a process of the test program: none for the relay. All that the tests
// start inherits roleTests, so that a test program among them adds no guard.
const (
	roleVar   = "TEST_SURROUNDINGS"
	roleGuard = "guard"
	roleTests = "own"
)

// Enter returns in the process of the tests alone. It comes after whatever else a test program can be (an agent, an
// errand), and before anything that the tests need.
func Enter() {
	var status int
	var err error
	switch role := os.Getenv(roleVar); {
	case role == roleGuard:
		status, err = guard()
	case role == "" && strings.HasSuffix(os.Args[0], ".test"): // else a copy of it, by which a test starts a program
		status, err = relay()
	default:
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "surroundings:", err)
		status = 1
	}
	syscall.Exit(status) // os.Exit would take a second with the race detector
}

// relay starts the guard and returns the status of the tests.
func relay() (status int, err error) {
	passed := map[os.Signal]bool{}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		passed[sig] = !signal.Ignored(sig)
	}
	came := make(chan os.Signal, 16)
	signal.Notify(came) // a child has the default of a signal that is handled here, but ignores one that is ignored
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0, 0, 0); err != nil {
		return 0, fmt.Errorf("end with the parent: %w", err)
	}
	its, orders, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd, err := self()
	if err != nil {
		return 0, err
	}
	cmd.Env = append(environ(os.Environ()), roleVar+"="+roleGuard)
	cmd.Stdin = its
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), its.Close()); err != nil {
		return 0, err
	}
	go func() {
		for sig := range came {
			if passed[sig] {
				_, _ = orders.Write([]byte{byte(sig.(syscall.Signal))}) // the guard is gone: Wait returns
			}
		}
	}()
	var exit *exec.ExitError
	if err = cmd.Wait(); errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), err
}

// self is this program once more.
func self() (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.Stdout, cmd.Stderr = os.Args, os.Stdout, os.Stderr
	return cmd, nil
}

// follow passes the relay's signals on to the tests, and kills them once the relay is gone.
func follow(orders io.Reader, tests *os.Process) {
	b := make([]byte, 1)
	for {
		sig := syscall.SIGKILL
		_, err := io.ReadFull(orders, b)
		if err == nil {
			sig = syscall.Signal(b[0])
		}
		_ = tests.Signal(sig) // they may have ended
		if err != nil {
			return
		}
	}
}
