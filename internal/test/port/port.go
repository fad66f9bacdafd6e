// Package port reserves TCP ports for tests that need one before there is a listener, or between two.
//
// A listener of the test's own process has to be closed by Close before another one listens on its port.
package port

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Reserve returns an address of this machine with a port that is the test's until it ends. A socket is bound to it and
// does not listen: connections are refused, the kernel hands the port out to no listener on port 0, and a program that
// names it may listen there, as both sockets have SO_REUSEADDR (Go sets it on every listener).
func Reserve(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing was written to it
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
}

// Close closes a listener, and its port can be listened on when it returns. A child that another test starts meanwhile
// has a copy of the socket until its exec is complete, so closing it here alone would leave it listening.
func Close(l *net.TCPListener) error {
	conn, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var stopped error
	err = conn.Control(func(fd uintptr) { stopped = unix.Shutdown(int(fd), unix.SHUT_RD) })
	return errors.Join(err, stopped, l.Close())
}
