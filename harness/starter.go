package harness

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/outcome"
)

// An agent begins as a process of this very program, which waits until it is told to become the agent. So whoever starts it can write its process id
// down first: there is no agent that nobody knows of, whenever the one who started it dies.

const (
	// starterName is what such a process is called by.
	starterName = "arbe-agent"
	gateFD      = 3
)

// NotBegun is how it ends when nobody is there any more to tell it: the agent has not begun.
var NotBegun = outcome.ExitCode(notBegun)

const notBegun = 125

// A program that starts agents is also the one that becomes them; nothing else of it may run then.
func init() {
	if len(os.Args) > 1 && os.Args[0] == starterName {
		os.Exit(becomeAgent(os.Args[1], os.Args[1:]))
	}
}

// becomeAgent waits at the gate and then turns this process into the agent. It returns where that can't be, or must not.
func becomeAgent(path string, argv []string) int {
	unix.CloseOnExec(gateFD)
	defaultAction(syscall.SIGTTOU)
	if _, err := unix.Write(gateFD, []byte{ready}); err != nil {
		return notBegun
	}
	word := make([]byte, 1)
	for {
		n, err := unix.Read(gateFD, word)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 {
			return notBegun
		}
		break
	}
	err := unix.Exec(path, argv, os.Environ())
	var no syscall.Errno
	if errors.As(err, &no) {
		_, _ = unix.Write(gateFD, []byte(strconv.Itoa(int(no)))) // nobody else can be told
	}
	return notBegun
}

// ready is what a process at the gate says first.
const ready = '.'

// defaultAction gives a signal that the runner ignores its default action again, which the agent then inherits. What
// Go offers gives back what this process has inherited.
func defaultAction(sig syscall.Signal) {
	var action [4]uint64 // struct sigaction of the kernel: SIG_DFL, no flags, no mask
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// open waits for the process at the gate, tells it to become the agent, and returns what it has against it. The gate
// closes by itself when the agent begins. ErrNotReady says that the process is gone, or does nothing.
func open(gate *os.File, path string) error {
	if err := gate.SetReadDeadline(time.Now().Add(atTheGate)); err != nil {
		return err
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	if _, err := gate.Write([]byte{1}); err != nil {
		return nil // it is gone: how, is for whoever waits for it
	}
	b, err := io.ReadAll(gate)
	if no, convErr := strconv.Atoi(string(b)); err == nil && convErr == nil {
		return &fs.PathError{Op: "exec", Path: path, Err: syscall.Errno(no)}
	}
	return nil
}
