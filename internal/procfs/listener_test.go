package procfs_test

import (
	"net"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/procfs"
)

// A listener has its process's pid, on either protocol; a port that is only connected to, or that was closed, does not.
func TestListener(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		port := freePort(t)
		ln, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil && host == "::1" {
			t.Logf("no IPv6 here: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := procfs.Listener(port); got != os.Getpid() {
			t.Errorf("%s: process %d listens, want %d", ln.Addr(), got, os.Getpid())
		}
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		// Another process may listen on that port of another address.
		if procfs.Listener(conn.LocalAddr().(*net.TCPAddr).Port) == os.Getpid() {
			t.Error("a client's port has a listener")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		if got := procfs.Listener(port); got != 0 {
			t.Errorf("process %d listens on a port that was closed", got)
		}
	}
}

// freePort returns a port that no other process listens on until the test ends, on any address: a socket of both
// protocols is bound to it, and does not listen. The kernel gives a port of one address away on another one, too.
func freePort(t *testing.T) int {
	t.Helper()
	var addr unix.Sockaddr = &unix.SockaddrInet6{}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	} else { // no IPv6 here
		addr = &unix.SockaddrInet4{}
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) // nothing was written to it
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, addr); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if name, is := name.(*unix.SockaddrInet6); is {
		return name.Port
	}
	return name.(*unix.SockaddrInet4).Port
}
