// Command arbe-pi-runner runs a coding agent in a box and mirrors it onto a thread: every line of the agent's session,
// heartbeats, and the verdict of the run. See the README for the exit statuses.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	arbe "arbe.0sk.ar/runner"
	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// exitUndelivered is the exit status of a run whose end is not on the thread. The others are cmdline.StatusUsage, the
// runner's Status constants and the agent's own.
const exitUndelivered = 75

func main() {
	harness.Main()
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// program is one process of a run, or of another command: its arguments, environment and streams, and a worker's job.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string

	// Of a worker.
	job    *job // nil for all others
	folder *runfolder.Folder
	keeper runner.Handover // the connection to its keeper
	byHand bool            // stderr is a terminal
	screen io.Writer       // stderr itself: lines of the log may be dropped, the agent's output may not
}

func (p *program) getenv(name string) string { return runner.Getenv(p.environ, name) }

// gcPercent is lower than the default, to save memory for the agent.
const gcPercent = 40

// run is the program without os.Exit.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	// Handled signals are not inherited by the agent, ignored ones would be.
	stopPipe := ignoreBrokenPipe()
	defer stopPipe()
	if len(args) > 1 && args[1] == argKeep {
		return keep(stderr)
	}
	if len(args) > 1 && args[1] == argWork {
		return work(stdout)
	}
	if len(args) > 1 && args[1] == argExec {
		return supervise(stderr)
	}
	runner.Hide()
	p := program{stdin: stdin, stdout: cmdline.NewOutput(stdout), stderr: stderr, environ: os.Environ()}
	return p.run(args)
}

// run runs the command in the arguments.
func (p *program) run(args []string) int {
	commands := []*cli.Command{
		p.runCommand(), p.mirrorCommand(), p.recoverCommand(), p.hydrateCommand(), p.decideCommand(),
		p.execCommand(), p.reachCommand(), p.statusCommand(),
		cmdline.VersionCommand("arbe-pi-runner", nil),
	}
	for _, c := range commands {
		c.Before = p.outrank
	}
	return cmdline.Run(context.Background(), &cli.App{
		Name:      "arbe-pi-runner",
		Usage:     "run a coding agent, mirror its session onto a thread, and post the verdict",
		UsageText: "arbe-pi-runner COMMAND [flags]",
		Description: strings.TrimSpace(`
It reads where to write from the environment: ARBE_THREAD_ID, ARBE_STREAM_URL and ARBE_STREAM_TOKEN. A flag outranks
its variable.
By hand, with a thread server on this machine (arbe serve):

  export ARBE_THREAD_ID=$(arbe thread new) ARBE_STREAM_URL=http://127.0.0.1:8787
  export ARBE_STREAM_TOKEN=$(arbe token mint --thread $ARBE_THREAD_ID)
  arbe-pi-runner run -- "Write a haiku into haiku.txt"
  arbe thread tail $ARBE_THREAD_ID`),
		Reader: p.stdin, Writer: p.stdout, ErrWriter: p.stderr,
		Commands: commands, Version: arbe.This().String(),
	}, args, map[string]cmdline.Values{"HARNESS": cmdline.Words(harness.Names()...)})
}

// signalled is the cause of a context that ended by a signal.
type signalled syscall.Signal

func (s signalled) Error() string { return unix.SignalName(syscall.Signal(s)) }

// untilSignal returns two contexts. The first ends with the first TERM, INT or HUP; the second with a second INT, from
// a person who presses Ctrl-C again, or with a third signal of any kind, from a supervisor. stop ends both and waits
// for the goroutine. The signals in before count as received now. Each later one is logged: the kernel may deliver
// several that come at once as one.
func untilSignal(
	parent context.Context, log *slog.Logger, before ...syscall.Signal,
) (first, second context.Context, stop func()) {
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	if signal.Ignored(syscall.SIGHUP) {
		signals = signals[:2] // under nohup
	}
	came := make(chan os.Signal, 4)
	signal.Notify(came, signals...)
	first, end := context.WithCancelCause(parent)
	second, abandon := context.WithCancelCause(context.WithoutCancel(parent))
	quit := make(chan struct{})
	n := 0
	take := func(sig syscall.Signal) {
		if n++; n >= runner.EnoughSignals || n > 1 && sig == syscall.SIGINT {
			abandon(signalled(sig))
		}
		end(signalled(sig))
	}
	for _, sig := range before {
		take(sig)
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			select {
			case s := <-came:
				sig := s.(syscall.Signal)
				take(sig)
				left := runner.EnoughSignals - n
				if sig == syscall.SIGINT {
					left = min(left, 1)
				}
				if second.Err() != nil {
					left = 0
				}
				log.Info("signal received", "signal", signalled(sig).Error(), "more_to_give_up", left)
			case <-quit:
				return
			}
		}
	})
	return first, second, func() {
		signal.Stop(came)
		close(quit)
		listening.Wait()
		end(nil)
		abandon(nil)
	}
}

// ignoreBrokenPipe keeps the program alive without a reader of its stderr, as after arbe launch.
func ignoreBrokenPipe() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	return func() { signal.Stop(c) }
}
