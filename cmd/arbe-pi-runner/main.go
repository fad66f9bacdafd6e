// Command arbe-pi-runner runs a coding agent in a box and keeps its thread told: every line of the agent's session, a
// heartbeat, and in the end what the run came to. See the README for the exit statuses.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner"
)

// exitUndelivered is the exit status of a run whose end is not on the thread. The others are cmdline.StatusUsage, the
// runner's Status constants and the agent's own.
const exitUndelivered = 75

// version is stamped by the linker.
var version = "dev"

func main() {
	harness.Main()
	os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// program is one process of ours: what it was given, and for a worker of a run what its keeper handed on.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string

	// A worker's.
	job    *job             // nil for all others
	lock   *os.File         // the thread's, to be held
	keeper *runner.Handover // the way to its keeper
	byHand bool             // a person watches
	screen io.Writer        // stderr itself: the agent's output is not to be dropped like lines of a log
}

func (p *program) getenv(name string) string { return lookup(p.environ, name) }

// gcPercent makes the garbage collector work harder than by default: the box's memory is the agent's.
const gcPercent = 40

// run is the whole program, but for the end of its process.
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
	runner.Hide()
	p := program{stdin: stdin, stdout: stdout, stderr: stderr, environ: os.Environ()}
	return p.run(args)
}

// run runs the command that the arguments name.
func (p *program) run(args []string) int {
	return cmdline.Run(context.Background(), &cli.App{
		Name:      "arbe-pi-runner",
		Usage:     "run a coding agent, mirror its session onto a thread, and say what it came to",
		UsageText: "arbe-pi-runner COMMAND [flags]",
		Description: strings.TrimSpace(`
It reads where to write from the environment: ARBE_THREAD_ID, ARBE_STREAM_URL and ARBE_STREAM_TOKEN.
By hand, with a thread server on this machine (arbe serve):

  export ARBE_THREAD_ID=$(arbe thread new) ARBE_STREAM_URL=http://127.0.0.1:8787
  export ARBE_STREAM_TOKEN=$(arbe token mint --thread $ARBE_THREAD_ID)
  arbe-pi-runner run -- "Write a haiku into haiku.txt"
  arbe thread tail $ARBE_THREAD_ID`),
		Reader: p.stdin, Writer: p.stdout, ErrWriter: p.stderr,
		Commands: []*cli.Command{p.runCommand(), p.mirrorCommand(), p.recoverCommand(), p.hydrateCommand(), p.decideCommand(), p.statusCommand(), p.versionCommand()},
	}, args)
}

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cmdline.Usage("version takes no arguments")
			}
			fmt.Fprintf(p.stdout, "arbe-pi-runner %s%s %s %s/%s\n", version, revision(), runtime.Version(),
				runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

// revision is the commit that the program was built from, where the build knows it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) > 12 {
			return " (" + s.Value[:12] + ")"
		}
	}
	return ""
}
