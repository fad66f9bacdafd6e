package stdio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// inputFile is the FIFO in a live run's folder that is the agent's stdin.
const inputFile = "input"

// mostPipe is the capacity that the FIFO gets where the kernel allows it, in bytes: an unprivileged user's most.
const mostPipe = 1 << 20

// Input is a process's open FIFO to a live run's agent. The keeper and the worker have it open for reading and writing:
// the agent sees the end of its input when both have closed it or are dead.
//
// A line that fits is written into the empty pipe by one system call, so a KILL does not tear it.
type Input struct {
	path     string
	capacity int

	closing sync.Mutex
	fd      int // -1: closed
}

// OpenInput opens the FIFO in the run's folder, and makes it where it is missing.
func OpenInput(folder string) (*Input, error) {
	path := filepath.Join(folder, inputFile)
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, mostPipe) // refused: the capacity stays
	capacity, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the capacity of %s: %w", path, err), unix.Close(fd))
	}
	return &Input{path: path, fd: fd, capacity: capacity}, nil
}

// Stdin opens the end for the agent.
func (i *Input) Stdin() (*os.File, error) {
	fd, err := unix.Open(i.path, unix.O_RDONLY|unix.O_CLOEXEC, 0) // it does not block: this process can write
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", i.path, err)
	}
	return os.NewFile(uintptr(fd), i.path), nil
}

// Empty discards what no agent has read.
func (i *Input) Empty() error {
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(i.fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return fmt.Errorf("empty %s: %w", i.path, err)
		case n == 0:
			return nil
		}
	}
}

// Filled reports whether the agent has bytes to read.
func (i *Input) Filled() (bool, error) {
	n, err := unix.IoctlGetInt(i.fd, unix.TIOCINQ)
	if err != nil {
		return false, fmt.Errorf("look into %s: %w", i.path, err)
	}
	return n > 0, nil
}

// Fits reports whether a line can be written at once.
func (i *Input) Fits(line []byte) bool { return len(line) <= i.capacity }

// Write writes as much of b as the pipe takes now.
func (i *Input) Write(b []byte) (n int, err error) {
	for {
		n, err = unix.Write(i.fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("write to %s: %w", i.path, err)
		}
		return n, nil
	}
}

// Close closes this process's end. It may be called twice, and beside another Close.
func (i *Input) Close() error {
	if i == nil {
		return nil
	}
	i.closing.Lock()
	defer i.closing.Unlock()
	if i.fd < 0 {
		return nil
	}
	fd := i.fd
	i.fd = -1
	return unix.Close(fd)
}
