//go:build !unix

package procgroup

import "os/exec"

// Lead does nothing.
func Lead(*exec.Cmd) {}

// Detach does nothing.
func Detach(*exec.Cmd) {}

// Kill kills a command; os.ErrProcessDone if it has ended.
func Kill(cmd *exec.Cmd) error { return cmd.Process.Kill() }
