// Command report runs "go test -json" commands, each argument one command line, two at a time, and prints their
// results as go test does: a line for each package, with the processor seconds of its tests and of what they started,
// and the output of tests that failed. At the end it counts passed and skipped tests, names the packages that took
// longest, and lists the skipped tests with their reasons. It exits with 1 where a package failed, where a command ran
// no package, and, if $CI is set, where a test was skipped for a reason other than a missing feature of the kernel.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == argSpent {
		os.Exit(spent(os.Args[2:]))
	}
	// go run does not pass on the signal that it dies of.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGTERM), 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "report: end with the parent:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(report(ctx, os.Args[1:], os.Stdout, os.Getenv("CI") != ""))
}

// report runs the commands and returns the exit status.
func report(ctx context.Context, commands []string, w io.Writer, ci bool) int {
	if len(commands) == 0 {
		fmt.Fprintln(w, "usage: report 'go test -json ...' ...")
		return 64
	}
	began := time.Now()
	var mu sync.Mutex
	all := newTally(w)
	var wg sync.WaitGroup
	// One command alone would leave cores idle while it waits or links; all at once would be slow to each other's
	// tests.
	turn := make(chan struct{}, 2)
	for _, line := range commands {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			err := run(ctx, line, func(b []byte) {
				mu.Lock()
				defer mu.Unlock()
				all.add(b)
			})
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				all.broken(line, err)
			}
		})
	}
	wg.Wait()
	return all.summary(time.Since(began), ci)
}

// run runs one command and calls each with the lines of its output. A go test that ran and failed is no error: its
// output has the failure.
func run(ctx context.Context, line string, each func([]byte)) error {
	line, err := measured(line)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	// go test leaves it to a terminal to interrupt the tests, too: one signal for the group is for all of them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = time.Minute
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	packages := 0
	r := bufio.NewReader(out)
	for {
		b, err := r.ReadBytes('\n')
		if strings.Contains(string(b), `"Action":"start"`) || strings.Contains(string(b), `"Action":"build-fail"`) {
			packages++
		}
		if len(b) > 0 {
			each(b)
		}
		if err != nil {
			break // the end of the output; how the command ended is read from Wait
		}
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if packages > 0 && errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil
	}
	if err == nil && packages == 0 {
		return errors.New("no package was tested")
	}
	return err
}
