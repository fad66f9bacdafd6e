package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"arbe.0sk.ar/runner/internal/procgroup"
)

func (b *localBox) Exec(ctx context.Context, c Command) (Result, error) {
	failed := Result{ExitCode: -1}
	dir, err := c.check(b.WorkDir())
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
	dir, err := c.check(b.WorkDir())
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

// pipes carry the two outputs of a local command.
type pipes struct {
	write [2]*os.File // the command's ends
	read  [2]*os.File
	out   *output
	over  atomic.Bool // the command has ended
	wg    sync.WaitGroup
}

// pipes makes the pipes. begin and end must be called.
func (o *output) pipes() (*pipes, error) {
	p := &pipes{out: o}
	for i := range p.write {
		var err error
		if p.read[i], p.write[i], err = os.Pipe(); err != nil {
			p.close(p.read[:i])
			p.close(p.write[:i])
			return nil, err
		}
	}
	return p, nil
}

func (p *pipes) close(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was buffered
	}
}

// begin starts reading. It closes the ends to write to, of which the command has its own copies.
func (p *pipes) begin() {
	p.close(p.write[:])
	for i := range p.read {
		p.wg.Go(func() { p.copy(Stdout+Stream(i), p.read[i]) })
	}
}

// end returns when the outputs of a command that has ended are read. Processes that the command left behind may keep
// the outputs open for ever, so end reads until no output comes for outputGrace, and at most what fits into a pipe.
func (p *pipes) end() {
	p.over.Store(true)
	for _, r := range p.read {
		_ = r.SetReadDeadline(time.Now().Add(outputGrace)) // pipes have deadlines
	}
	p.wg.Wait()
	p.close(p.read[:])
}

// pipeSize is the capacity of a pipe on Linux, in bytes.
const pipeSize = 64 << 10

func (p *pipes) copy(s Stream, r *os.File) {
	buf := make([]byte, 32<<10)
	for left, late := pipeSize, 0; left > 0 && late < 2; {
		over := p.over.Load()
		n, err := r.Read(buf)
		p.out.add(s, buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			late++ // once may mean that the output's reader was slow
			_ = r.SetReadDeadline(time.Now().Add(outputGrace))
		case err != nil:
			return
		default:
			late = 0
		}
		if over {
			left -= n
		}
	}
}
