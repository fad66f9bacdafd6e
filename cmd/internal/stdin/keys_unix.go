//go:build linux || darwin

package stdin

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// keys is a terminal that gives keys, and shows none of them.
type keys struct {
	file *os.File
	was  unix.Termios // how to restore it

	signals chan os.Signal
	done    chan struct{}

	mu     sync.Mutex
	closed bool
}

// takeKeys lets a terminal give keys until Close, and while the process is stopped.
func takeKeys(f *os.File) (*keys, error) {
	was, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	if err != nil {
		return nil, fmt.Errorf("%s is no terminal: %w", f.Name(), errors.ErrUnsupported)
	}
	k := &keys{file: f, was: *was, signals: make(chan os.Signal, 4), done: make(chan struct{})}
	if err := k.take(); err != nil {
		return nil, err
	}
	signal.Notify(k.signals, unix.SIGTSTP, unix.SIGCONT)
	go k.watch()
	return k, nil
}

// take makes the terminal give keys. Keys that send signals still do, and output is as it was.
func (k *keys) take() error {
	now := k.was
	now.Lflag &^= unix.ICANON | unix.ECHO | unix.IEXTEN
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(k.file.Fd()), setTermios, &now); err != nil {
		return fmt.Errorf("read keys from %s: %w", k.file.Name(), err)
	}
	_, err := k.file.WriteString(bracketsOn)
	return err
}

// give gives the terminal back.
func (k *keys) give() error {
	_, err := k.file.WriteString(bracketsOff)
	return errors.Join(unix.IoctlSetTermios(int(k.file.Fd()), setTermios, &k.was), err)
}

// watch gives the terminal back while the process is stopped by Ctrl-Z.
func (k *keys) watch() {
	defer close(k.done)
	for sig := range k.signals {
		k.mu.Lock()
		if !k.closed {
			if sig == unix.SIGTSTP {
				_ = k.give() // what stops is not delayed by it
				_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			}
			_ = k.take() // in the background it can't be taken: SIGCONT comes again in the foreground
		}
		k.mu.Unlock()
	}
}

// Close gives the terminal back.
func (k *keys) Close() error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil
	}
	k.closed = true
	err := k.give()
	k.mu.Unlock()
	signal.Stop(k.signals)
	close(k.signals)
	<-k.done
	return err
}

// readable reports whether a read of a pipe returns bytes at once.
func readable(f *os.File) bool {
	poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&unix.POLLIN != 0
}
