package harness

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"

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

// open tells the process at the gate to become the agent, and returns what it has against it. The gate closes by itself when the agent begins.
func open(gate *os.File, path string) error {
	if _, err := gate.Write([]byte{1}); err != nil {
		return nil // it is gone: how, is for whoever waits for it
	}
	b, err := io.ReadAll(gate)
	if no, convErr := strconv.Atoi(string(b)); err == nil && convErr == nil {
		return &fs.PathError{Op: "exec", Path: path, Err: syscall.Errno(no)}
	}
	return nil
}
