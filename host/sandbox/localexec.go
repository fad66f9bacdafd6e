package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"arbe.0sk.ar/runner/internal/procgroup"
)

func (b *localBox) Exec(ctx context.Context, c Command) (Result, error) {
	failed := Result{ExitCode: -1}
	if len(c.Argv) == 0 {
		return failed, errors.New("empty argv")
	}
	if err := checkEnv(c.Env); err != nil {
		return failed, err
	}
	dir, err := confine(b.WorkDir(), c.Dir)
	if err != nil {
		return failed, err
	}
	if err := b.there(); err != nil {
		return failed, err
	}
	run, limit, end := b.begin(ctx)
	defer end()
	env := b.env(c.Env)
	cmd := exec.CommandContext(run, lookPath(c.Argv[0], env), c.Argv[1:]...)
	cmd.Args[0] = c.Argv[0]
	cmd.Dir, cmd.Env, cmd.Stdin = dir, env, c.Stdin
	out := newOutput(c)
	pipes, err := out.pipes()
	if err != nil {
		return failed, fmt.Errorf("exec %s: %w", c.Argv[0], err)
	}
	cmd.Stdout, cmd.Stderr = pipes.write[0], pipes.write[1]
	procgroup.Lead(cmd)
	var cause error // written by Cancel, which Wait waits for
	cmd.Cancel = func() error {
		cause = context.Cause(run)
		return procgroup.Kill(cmd)
	}
	cmd.WaitDelay = outputGrace
	began := time.Now()
	err = cmd.Start()
	pipes.begin()
	if err != nil {
		pipes.end()
		return failed, fmt.Errorf("exec %s: %w", c.Argv[0], err)
	}
	limit(c.Timeout)
	err = cmd.Wait()
	_ = procgroup.Kill(cmd) // processes that it left in its group
	pipes.end()
	res := Result{ExitCode: cmd.ProcessState.ExitCode(), Duration: time.Since(began)}
	out.fill(&res)
	var ended *exec.ExitError
	switch {
	case cause != nil && !cmd.ProcessState.Success():
		return res, res.cutShort(cause)
	case err == nil, cause != nil, errors.As(err, &ended), errors.Is(err, exec.ErrWaitDelay):
		return res, nil
	}
	return res, fmt.Errorf("exec %s: %w", c.Argv[0], err) // reading its input failed
}

// lookPath finds a command as the shell of the box would: in the box's PATH, not in this process's. A command that is
// not found is returned as it is; starting it returns the error.
func lookPath(name string, env []string) string {
	cmd := exec.Command("/bin/sh", "-c", `command -v "$1"`, "sh", name)
	cmd.Env = env
	if found, err := cmd.Output(); err == nil && bytes.HasPrefix(found, []byte("/")) {
		return string(bytes.TrimRight(found, "\n"))
	}
	return name
}

func (b *localBox) Detach(ctx context.Context, c Command, log string) (Process, error) {
	if len(c.Argv) == 0 {
		return Process{}, errors.New("empty argv")
	}
	if err := checkEnv(c.Env); err != nil {
		return Process{}, err
	}
	dir, err := confine(b.WorkDir(), c.Dir)
	if err != nil {
		return Process{}, err
	}
	file, err := confineFile(b.Home(), log)
	if err != nil {
		return Process{}, err
	}
	if err := b.there(); err != nil {
		return Process{}, err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", detachScript, "sh", dir, file}, c.Argv...)...)
	cmd.Dir, cmd.Env = b.dir, b.env(c.Env)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = outputGrace
	err = cmd.Run()
	p, perr := parseDetached(output.String())
	if perr != nil {
		err := fmt.Errorf("detach %s: %w", c.Argv[0], errors.Join(perr, err))
		return Process{}, redacted(err, secretValues(c.Env)...)
	}
	if err := b.noteDetached(p); err != nil {
		return Process{}, fmt.Errorf("detach %s: %w", c.Argv[0], errors.Join(err, b.family([]Process{p}).end(ctx)))
	}
	return p, nil
}

func (b *localBox) Alive(_ context.Context, p Process) (bool, error) {
	if err := b.there(); err != nil {
		return false, err
	}
	return b.runs(p)
}

// runs reports whether a process is alive on this machine.
func (b *localBox) runs(p Process) (bool, error) {
	s, ok, err := readStat(p.PID)
	return ok && runs(s, p) && sameBoot(p), err
}
