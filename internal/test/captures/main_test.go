package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// What a shell and its children write when their terminal goes is in the folder before that is removed.
func TestAwaitSession(t *testing.T) {
	dir := t.TempDir()
	const script = `trap "sleep 0.2; exit" HUP
sh -c 'trap "sleep 0.5; touch late; exit" HUP; touch ready; while :; do sleep 0.01; done' &
while :; do sleep 0.01; done`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // where the test has failed
		_ = cmd.Wait()                                      // a signal ended it
	})
	exists := func(name string) (bool, error) {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil, nil
	}
	if err := until(t.Context(), "the child", func() (bool, error) { return exists("ready") }); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := awaitSession(t.Context(), cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if late, _ := exists("late"); !late {
		t.Error("a child of the shell lives on")
	}
}
