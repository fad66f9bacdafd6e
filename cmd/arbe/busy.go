package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/internal/procfs"
)

// inUse rewords a server's error that its address or its data folder is in use: with the process, and the next step.
func inUse(err error, d daemon.Data) error {
	by := func(pid int) string {
		if pid == 0 {
			return "another process"
		}
		return fmt.Sprintf("process %d", pid)
	}
	var store *daemon.InUseError
	if errors.As(err, &store) {
		return fmt.Errorf("data folder %s is in use by %s: stop that server, or name another folder with --data",
			d, by(store.PID))
	}
	var op *net.OpError
	if errors.As(err, &op) && errors.Is(err, syscall.EADDRINUSE) {
		pid := 0
		if at, is := op.Addr.(*net.TCPAddr); is {
			pid = procfs.Listener(at.Port)
		}
		return fmt.Errorf("address %s is in use by %s: stop it, or listen elsewhere with --addr", op.Addr, by(pid))
	}
	return err
}
