// Package git runs git on this machine, without any configuration of its user or of the system.
//
// Run bounds the time of a command and the output that it keeps, and ends git's helpers with it. The configuration of
// the repository itself is read. A caller that does not trust that overrides what would run other programs: Safe.
package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/procgroup"
)

// Command is one run of git.
type Command struct {
	Dir    string // its working directory
	Args   []string
	Env    []string  // after the environment of every run
	Stdin  io.Reader // nil for an empty input
	Stdout io.Writer // gets all of its output; nil for Run's result
	Most   int       // bytes of its output to keep for Run's result; 0: 64 KiB
}

// Bounds of one run.
const (
	timeout    = 20 * time.Minute
	mostOutput = 64 << 10
	lingering  = 500 * time.Millisecond // for its children to close its output after its end
)

// Safe returns arguments before git's command: no hook runs, nor a program that watches files, nor a collection of
// garbage. A repository of another user is accepted.
func Safe() []string {
	return []string{
		"--no-pager", "-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false", "-c", "gc.auto=0",
		"-c", "maintenance.auto=false", "-c", "safe.directory=*",
	}
}

// Run runs git and returns the end of its standard output.
func Run(ctx context.Context, c Command) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", c.Args...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = c.Dir, c.Stdin, lingering
	cmd.Env = append(environment(c.Dir), c.Env...)
	out, complaint := tail{most: c.Most}, tail{}
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	procgroup.Lead(cmd) // git's helpers end with it
	cmd.Cancel = func() error { return procgroup.Kill(cmd) }
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return out.String(), fmt.Errorf("git %s: %w: %s", name(c.Args), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// name returns git's command among its arguments.
func name(args []string) string {
	for len(args) > 1 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-c" {
			args = args[1:]
		}
		args = args[1:]
	}
	return strings.Join(args[:min(len(args), 1)], "")
}

// Status returns the exit status of git in an error of Run; -1 where it was not git's.
func Status(err error) int {
	if ended, is := errors.AsType[*exec.ExitError](err); is {
		return ended.ExitCode()
	}
	return -1
}

// Historic are faults of objects in old public repositories, which servers accept.
const Historic = "zeroPaddedFilemode=ignore,missingSpaceBeforeDate=ignore,badTimezone=ignore"

// IsObject reports whether a text is the name of an object, by SHA-1 or SHA-256.
func IsObject(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// environment returns the environment of every run.
func environment(dir string) []string {
	env := []string{
		"HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_NO_REPLACE_OBJECTS=1",
	}
	for _, name := range []string{"PATH", "TMPDIR"} {
		if value, is := os.LookupEnv(name); is {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// tail keeps the end of what is written to it.
type tail struct {
	most int // 0: mostOutput
	buf  bytes.Buffer
}

func (t *tail) Write(b []byte) (int, error) {
	t.buf.Write(b)
	if over := t.buf.Len() - cmp.Or(t.most, mostOutput); over > 0 {
		t.buf.Next(over)
	}
	return len(b), nil
}

func (t *tail) String() string { return t.buf.String() }
