// Package port reserves TCP ports for tests that need one before there is a listener, or between two.
package port

import (
	"fmt"
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
