package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Hide keeps other processes of the same user from reading this process's memory, environment and open files through
// /proc, and from tracing it. Files that they have opened before stay open; an image (newImage) is hidden from its
// first instruction.
func Hide() {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // it can't fail with these values
}

// imageFD is a number above those of all files that a worker inherits.
const imageFD = 64

// newImage returns an unreadable copy of this program in memory. The kernel hides a process whose program its user
// can't read from its first instruction on, so that the agent can never open the memory of a new worker. newImage
// returns nil if this user can't read the program's file, which hides its processes already. An error means that the
// kernel has no memfd or no memory.
func newImage() (*os.File, error) {
	program, err := os.Open("/proc/self/exe")
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer program.Close() // read only: nothing to lose
	fd, err := unix.MemfdCreate("arbe-pi-runner", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 every memfd can be executed
		fd, err = unix.MemfdCreate("arbe-pi-runner", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	low := os.NewFile(uintptr(fd), "image")
	defer low.Close() // the copy is reached by its other number
	if _, err := io.Copy(low, program); err != nil {
		return nil, err
	}
	if err := low.Chmod(0o111); err != nil {
		return nil, err
	}
	high, err := unix.FcntlInt(low.Fd(), unix.F_DUPFD_CLOEXEC, imageFD)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(high), "image"), nil
}

// Numbers of operating system threads that a runner process needs at most: one for each system call that may block
// beside others, for each processor that Go uses, and for Go itself.
const (
	KeeperThreads = 3
	WorkerThreads = 10
)

// WarmUp starts this process's threads, which then stay. Go ends a process that can't start one more thread, which an
// agent at the limit on processes causes. If there is no room for the threads now, the process ends here, before it has
// any work, and its keeper retries later.
func WarmUp(threads int) {
	var here, gone sync.WaitGroup
	leave := make(chan struct{})
	for range threads {
		here.Add(1)
		gone.Go(func() {
			runtime.LockOSThread() // each in a thread of its own
			here.Done()
			<-leave
			runtime.UnlockOSThread()
		})
	}
	here.Wait()
	close(leave)
	gone.Wait()
}
