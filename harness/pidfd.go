package harness

import (
	"errors"
	"io/fs"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/procfs"
)

// pollEvery is the interval of looks at a process for which the kernel gives no pidfd.
const pollEvery = 50 * time.Millisecond

// await returns a func that waits for the end of the process with that pid and start; fs.ErrNotExist if it has ended.
// Without pidfd_open (before Linux 5.3, or behind a seccomp filter) the func polls.
func await(pid int, ticks uint64) (wait func(), err error) {
	fd, openErr := unix.PidfdOpen(pid, 0)
	if !lives(pid, ticks) {
		if openErr == nil {
			err = unix.Close(fd)
		}
		return nil, errors.Join(fs.ErrNotExist, err)
	}
	if openErr != nil {
		return func() {
			for lives(pid, ticks) {
				time.Sleep(pollEvery) // between two looks
			}
		}, nil
	}
	return func() {
		for { // a pidfd is readable when its process has ended
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_ = unix.Close(fd) // it was only waited on
	}, nil
}

// lives reports whether the process with that pid and start has not ended.
func lives(pid int, ticks uint64) bool {
	st, err := procfs.Read(pid)
	return err == nil && st.Started == ticks && st.Alive()
}

// signal sends sig to the process, and to no other one with its pid. Without a pidfd the pid may be reused between the
// look and the signal, which takes as many new processes as there are pids.
func (m Member) signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(m.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return // gone
	case err != nil:
		if lives(m.PID, m.Ticks) {
			_ = syscall.Kill(m.PID, sig) // it may have ended
		}
		return
	}
	if lives(m.PID, m.Ticks) {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			_ = syscall.Kill(m.PID, sig) // it may have ended
		}
	}
	_ = unix.Close(fd) // only used to signal
}
