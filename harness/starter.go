package harness

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/outcome"
)

// An agent begins as a process of this same program: the starter. It waits at a gate (a socket to its parent) and
// then executes the agent in its place. So Start records the process id before the agent's first instruction, and no
// agent runs unrecorded, whenever its parent dies.

const (
	starterName = "arbe-agent" // argv[0] of a starter
	gateFD      = 3
	ready       = '.' // the first byte that a starter writes to the gate
)

// NotBegun is the exit of a starter whose agent did not begin.
var NotBegun = outcome.ExitCode(notBegun)

const notBegun = 125

// ErrNoMain is Start's error in a program that has not called Main: a starter of it would run the whole program once
// more, not the agent.
var ErrNoMain = errors.New("this program can't start agents: harness.Main is not the first call of its main")

// mainCalled records that this program has called Main, so that its starters will, too.
var mainCalled atomic.Bool

// Main must be the first call in main, and in TestMain, of each program that calls Start. In a starter it executes
// the agent or ends the process; in all other processes it returns.
func Main() {
	if len(os.Args) > 1 && os.Args[0] == starterName {
		becomeAgent(os.Args[1], os.Args[1:])
		os.Exit(notBegun)
	}
	mainCalled.Store(true)
}

// becomeAgent waits at the gate and then executes the agent in this process's place. It returns in a starter whose
// parent is gone or whose agent can't be executed.
func becomeAgent(path string, argv []string) {
	unix.CloseOnExec(gateFD)
	defaultAction(syscall.SIGTTOU)
	if _, err := unix.Write(gateFD, []byte{ready}); err != nil {
		return
	}
	order := make([]byte, 1)
	for {
		n, err := unix.Read(gateFD, order)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 {
			return
		}
		break
	}
	err := unix.Exec(path, argv, os.Environ())
	var errno syscall.Errno
	if errors.As(err, &errno) {
		_, _ = unix.Write(gateFD, []byte(strconv.Itoa(int(errno)))) // the parent may be gone
	}
}

// defaultAction resets a signal that the runner ignores to its default action, which the agent inherits.
// signal.Reset restores the action that this process has inherited instead.
func defaultAction(sig syscall.Signal) {
	var action [4]uint64 // struct sigaction of the kernel: SIG_DFL, no flags, no mask
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// open waits for the starter at the gate, lets it execute the agent at path, and returns the error of that exec. The
// exec closes the starter's end of the gate. ErrNotReady means that the starter ended, or was not ready within
// atTheGate.
func open(gate *os.File, path string) error {
	if err := gate.SetReadDeadline(time.Now().Add(atTheGate)); err != nil {
		return err
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	if _, err := gate.Write([]byte{1}); err != nil {
		return nil // the starter has ended: its exit status reports how
	}
	b, err := io.ReadAll(gate)
	if errno, convErr := strconv.Atoi(string(b)); err == nil && convErr == nil {
		return &fs.PathError{Op: "exec", Path: path, Err: syscall.Errno(errno)}
	}
	return nil
}
