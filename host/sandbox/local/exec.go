package local

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

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/procgroup"
)

func (b *box) Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	failed := sandbox.Result{ExitCode: -1}
	dir, err := c.Check(b.WorkDir())
	if err != nil {
		return failed, err
	}
	if err := b.there(); err != nil {
		return failed, err
	}
	run, limit, end := b.Begin(ctx)
	defer end()
	env := b.env(c.Env)
	cmd := exec.CommandContext(run, lookPath(c.Argv[0], env), c.Argv[1:]...)
	cmd.Args[0] = c.Argv[0]
	cmd.Dir, cmd.Env, cmd.Stdin = dir, env, c.Stdin
	out := kit.NewCapture(c)
	pipes, err := newPipes(out)
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
	cmd.WaitDelay = kit.OutputGrace
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
	res := sandbox.Result{ExitCode: cmd.ProcessState.ExitCode(), Duration: time.Since(began)}
	out.Fill(&res)
	var ended *exec.ExitError
	switch {
	case cause != nil && !cmd.ProcessState.Success():
		return res, kit.CutShort(&res, cause)
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

func (b *box) Detach(ctx context.Context, c sandbox.Command, log string) (sandbox.Process, error) {
	dir, err := c.Check(b.WorkDir())
	if err != nil {
		return sandbox.Process{}, err
	}
	file, err := sandbox.ConfineFile(b.Home(), log)
	if err != nil {
		return sandbox.Process{}, err
	}
	if err := b.there(); err != nil {
		return sandbox.Process{}, err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", kit.DetachScript, "sh", dir, file}, c.Argv...)...)
	cmd.Dir, cmd.Env = b.dir, b.env(c.Env)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = kit.OutputGrace
	err = cmd.Run()
	p, perr := kit.ParseDetached(output.String())
	if perr != nil {
		err := fmt.Errorf("detach %s: %w", c.Argv[0], errors.Join(perr, err))
		return sandbox.Process{}, kit.Redacted(err, kit.SecretValues(c.Env)...)
	}
	if err := b.noteDetached(p); err != nil {
		err = errors.Join(err, b.family([]sandbox.Process{p}).end(ctx))
		return sandbox.Process{}, fmt.Errorf("detach %s: %w", c.Argv[0], err)
	}
	return p, nil
}

func (b *box) Alive(_ context.Context, p sandbox.Process) (bool, error) {
	if err := b.there(); err != nil {
		return false, err
	}
	return b.runs(p)
}

// runs reports whether a process is alive on this machine.
func (b *box) runs(p sandbox.Process) (bool, error) {
	s, ok, err := readStat(p.PID)
	return ok && kit.Is(s, p) && sameBoot(p), err
}

// pipes carry the two outputs of a local command.
type pipes struct {
	write [2]*os.File // the command's ends
	read  [2]*os.File
	out   *kit.Capture
	over  atomic.Bool // the command has ended
	wg    sync.WaitGroup
}

// newPipes makes the pipes of a capture. begin and end must be called.
func newPipes(out *kit.Capture) (*pipes, error) {
	p := &pipes{out: out}
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
		p.wg.Go(func() { p.copy(sandbox.Stdout+sandbox.Stream(i), p.read[i]) })
	}
}

// end returns when the outputs of a command that has ended are read. Processes that the command left behind may keep
// the outputs open for ever, so end reads until no output comes for outputGrace, and at most what fits into a pipe.
func (p *pipes) end() {
	p.over.Store(true)
	for _, r := range p.read {
		_ = r.SetReadDeadline(time.Now().Add(kit.OutputGrace)) // pipes have deadlines
	}
	p.wg.Wait()
	p.close(p.read[:])
}

// pipeSize is the capacity of a pipe on Linux, in bytes.
const pipeSize = 64 << 10

func (p *pipes) copy(s sandbox.Stream, r *os.File) {
	buf := make([]byte, 32<<10)
	for left, late := pipeSize, 0; left > 0 && late < 2; {
		over := p.over.Load()
		n, err := r.Read(buf)
		p.out.Add(s, buf[:n])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			late++ // once may mean that the output's reader was slow
			_ = r.SetReadDeadline(time.Now().Add(kit.OutputGrace))
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
