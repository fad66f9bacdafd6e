package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// argSpent is the first argument of this program where it runs a test program for go test -exec.
const argSpent = "spent"

// spentLine begins the line in which it prints the processor seconds of that program and of all that it waited for.
const spentLine = "processor seconds: "

// measured returns a go test command that starts its test programs by this one.
func measured(line string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return strings.Replace(line, "go test ", fmt.Sprintf("go test -exec '%s %s' ", self, argSpent), 1), nil
}

// spent runs a test program, prints the processor seconds and returns the exit status.
func spent(args []string) int {
	runtime.LockOSThread() // the kernel kills the program when the thread that started it ends
	came := make(chan os.Signal, 1)
	// An interrupt is for the group, and the program has it, too. QUIT comes from go test, at the end of its -timeout.
	signal.Notify(came, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		return 1
	}
	go func() {
		for sig := range came {
			if sig != syscall.SIGINT {
				_ = cmd.Process.Signal(sig) // it may have ended
			}
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "report:", err)
		return 1
	}
	state := cmd.ProcessState
	fmt.Printf("%s%.2f\n", spentLine, (state.UserTime() + state.SystemTime()).Seconds())
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// secondsOf returns the processor seconds that a line of output has.
func secondsOf(output string) (float64, bool) {
	s, ok := strings.CutPrefix(strings.TrimSpace(output), spentLine)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}
