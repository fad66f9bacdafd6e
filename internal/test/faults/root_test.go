package faults_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// rootVar names the variable that a test binary in a user namespace has.
const rootVar = "FAULTS_AS_ROOT"

// asRoot runs the tests again as the root of a user namespace with a mount namespace of its own, where small disks
// can be mounted, and returns their exit status. It does nothing for root, and where the kernel lets nobody else make
// one: the tests that need it are then skipped and name what is missing.
func asRoot() (status int, is bool) {
	if os.Geteuid() == 0 || os.Getenv(rootVar) != "" {
		return 0, false
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	in := func(args ...string) *exec.Cmd {
		cmd := exec.Command(self, args...)
		cmd.Env = append(os.Environ(), rootVar+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			Pdeathsig:   syscall.SIGKILL,
		}
		return cmd
	}
	if err := in("-test.list", "^$").Run(); err != nil {
		fmt.Fprintln(os.Stderr, "no user namespace can be made:", err)
		return 0, false
	}
	cmd := in(os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "in a user namespace:", err)
		return 1, true
	}
	return cmd.ProcessState.ExitCode(), true
}
