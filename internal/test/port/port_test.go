package port_test

import (
	"errors"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"arbe.0sk.ar/runner/internal/test/port"
)

// A reserved port refuses connections, is never handed out by the kernel, and takes listeners one after the other.
func TestReserve(t *testing.T) {
	addr := port.Reserve(t)
	for range 3 {
		if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: %v", err)
		}
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Close(), port.Close(ln.(*net.TCPListener))); err != nil {
			t.Error(err)
		}
	}
	// As many as a test may take; their ports are all ports that the kernel gives away, one after the other.
	for range 2000 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if ln.Addr().String() == addr {
			t.Fatal("the port was given away")
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A port takes the next listener also while children of this process start, which have copies of its sockets.
func TestClose(t *testing.T) {
	var starting sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		starting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer starting.Wait()
	defer close(stop)
	addr := port.Reserve(t)
	for range 2000 {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := port.Close(ln.(*net.TCPListener)); err != nil {
			t.Fatal(err)
		}
	}
}
