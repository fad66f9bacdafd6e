package procfs_test

import (
	"net"
	"os"
	"testing"

	"arbe.0sk.ar/runner/internal/procfs"
)

// A listener has its process's pid, on either protocol; a port that is only connected to, or free, has none.
func TestListener(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", addr)
		if err != nil && addr != "127.0.0.1:0" {
			t.Logf("no IPv6 here: %v", err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		port := ln.Addr().(*net.TCPAddr).Port
		if got := procfs.Listener(port); got != os.Getpid() {
			t.Errorf("%s: process %d listens, want %d", ln.Addr(), got, os.Getpid())
		}
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if got := procfs.Listener(conn.LocalAddr().(*net.TCPAddr).Port); got != 0 {
			t.Errorf("process %d listens on a client's port", got)
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
