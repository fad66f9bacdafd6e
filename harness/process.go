package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/outcome"
)

// Command is a process to start.
type Command struct {
	Path   string   // of the binary, from Find
	Args   []string // without the binary
	Env    []string // the whole environment
	Dir    string
	Stdin  string   // its whole input; "": /dev/null, or Input
	Input  *os.File // its stdin, in place of Stdin; nil: none
	Stdout *os.File
	Stderr *os.File
	TTY    *os.File // a terminal instead of Stdin, Stdout and Stderr; nil: none
	Group  *Group   // the cgroup to start it in; nil: the caller's

	// Spawned, if not nil, gets the process id before the agent's first instruction. If this process dies before
	// Spawned returns, the agent does not begin.
	Spawned func(pid int)
}

// Process is a running agent: a child of this process, or an adopted process.
type Process struct {
	proc *os.Process
	cmd  *exec.Cmd // nil: not a child of this process
	done chan struct{}
	exit outcome.Exit
}

// Timeouts.
const (
	afterKill = 1500 * time.Millisecond // of the end of a killed process; one that hangs in the kernel may never end
	atTheGate = 30 * time.Second        // of a starter to come to the gate, generous for a machine under load
)

// ErrNotReady: the starter ended, or did nothing, before it could become the agent. The machine may have no room for
// its threads.
var ErrNotReady = errors.New("the agent's process did not begin")

// Busy reports whether an error of Start means that the machine lacks processes, memory or open files. A later Start
// may succeed.
func Busy(err error) bool {
	for _, lack := range []error{
		ErrNotReady, syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY,
	} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// agentOOMScore makes the agent a likelier victim of the OOM killer than the runner, which can then report it.
const agentOOMScore = "500"

// Start starts c in a process group of its own. After a Busy error a later Start may succeed. The output goes to files,
// not pipes: the agent outlives its parent, and a grandchild that keeps the output open delays nothing.
func Start(c Command) (*Process, error) {
	if !mainCalled.Load() {
		return nil, ErrNoMain
	}
	gates, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	if err := unix.SetNonblock(gates[0], true); err != nil { // for read deadlines
		return nil, errors.Join(err, unix.Close(gates[0]), unix.Close(gates[1]))
	}
	ours, its := os.NewFile(uintptr(gates[0]), "gate"), os.NewFile(uintptr(gates[1]), "gate")
	cmd, err := c.start(its, c.Group)
	if err != nil && c.Group != nil {
		cmd, err = c.start(its, nil) // this kernel or sandbox can't start a process in a cgroup
	}
	if err = errors.Join(err, its.Close()); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p := &Process{proc: cmd.Process, cmd: cmd, done: make(chan struct{})}
	// Raising the score needs no privilege. A failure changes nothing else.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID()), []byte(agentOOMScore), 0)
	if c.Spawned != nil {
		c.Spawned(p.PID())
	}
	if err := errors.Join(open(ours, c.Path), ours.Close()); err != nil {
		_ = p.proc.Kill() // ends a starter that was not ready in time; any other exits
		_ = cmd.Wait()    // the reason is in err
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.exit = waitNoReap(p.PID())
	}()
	return p, nil
}

// start starts the starter, which waits at the gate.
func (c Command) start(gate *os.File, group *Group) (*exec.Cmd, error) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{starterName, c.Path}, c.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = c.Env, c.Dir, c.Stdout, c.Stderr, []*os.File{gate}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.dir.Fd())
	}
	if c.TTY != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = c.TTY, c.TTY, c.TTY
		// A terminal belongs to a session, whose leader has its own process group. Setpgid with Setsid is an error.
		cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = false, true, true
	}
	if c.Input != nil {
		cmd.Stdin = c.Input
	}
	if c.Stdin == "" {
		return cmd, cmd.Start()
	}
	f, err := inputFile(c.Stdin)
	if err != nil {
		return nil, err
	}
	cmd.Stdin = f
	return cmd, errors.Join(cmd.Start(), f.Close())
}

// Adopt returns the Process for a running process that is not a child of this one. ticks is its start from its
// procfs.Stat, which distinguishes it from another process with the same pid. After its end Adopt calls learn for its
// exit; learn may block for a moment, and returns false if the exit is unknown. The error is fs.ErrNotExist if the
// process has ended.
func Adopt(pid int, ticks uint64, learn func() (outcome.Exit, bool)) (*Process, error) {
	proc, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	wait, err := await(pid, ticks)
	if err != nil {
		return nil, err
	}
	p := &Process{proc: proc, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		wait()
		p.exit, _ = learn()
	}()
	return p, nil
}

// inputFile returns an unlinked file with the content, opened at its start.
func inputFile(content string) (f *os.File, err error) {
	f, err = os.CreateTemp("", "arbe-input-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return f, err
	}
	if _, err := io.Copy(f, strings.NewReader(content)); err != nil {
		return f, err
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// waitNoReap waits for a child's end and returns its exit. The child stays a zombie: if this process dies before it has
// recorded the exit, the process that inherits the zombie can still read it.
func waitNoReap(pid int) outcome.Exit {
	for {
		_, exit, err := Ended(unix.P_PID, pid, 0)
		if !errors.Is(err, unix.EINTR) {
			return exit // unknown with another error
		}
	}
}

// Ended waits for the end of a child, as waitid(2) does with these arguments, and returns its pid and its exit: 0 and
// unknown where none has ended. The child stays a zombie.
func Ended(of, id, options int) (pid int, exit outcome.Exit, err error) {
	// siginfo_t for SIGCHLD, as waitid(2) fills it. x/sys leaves the fields unnamed.
	var info struct {
		signo, errno, code int32
		_                  int32
		pid                int32
		uid                uint32
		status             int32
		_                  [128 - 28]byte
	}
	err = unix.Waitid(of, id, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|options, nil)
	const exited, killed, dumped = 1, 2, 3 // CLD_…
	switch info.code {
	case exited:
		exit = outcome.ExitCode(int(info.status))
	case killed, dumped:
		exit = outcome.Signalled(int(info.status))
	}
	return int(info.pid), exit, err
}

// PID is the agent's process id.
func (p *Process) PID() int { return p.proc.Pid }

// Done is closed when the agent has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is the agent's exit once Done is closed, and unknown before.
func (p *Process) Exit() outcome.Exit {
	select {
	case <-p.done:
		return p.exit
	default:
		return outcome.Exit{}
	}
}

// Release reaps the agent. Call it once the agent's exit is recorded. It does nothing for an agent that Stop could not
// end.
func (p *Process) Release() {
	select {
	case <-p.done:
	default:
		return // Wait could block for ever
	}
	if p.cmd != nil {
		_ = p.cmd.Wait() // the exit is known
	}
}

// Stop ends the agent: it sends sig, and after grace (or when ctx is done) KILL. It returns true when the agent has
// ended, and false if KILL did not end it within afterKill. It calls sending with each signal before it sends it.
// Leftover processes are ended by Tree.End.
func (p *Process) Stop(
	ctx context.Context, sig syscall.Signal, grace time.Duration, sending func(syscall.Signal),
) (ended bool) {
	if p.waits(ctx, 0) {
		return true
	}
	sending(sig)
	_ = p.proc.Signal(sig) // an error means that it has just ended
	if p.waits(ctx, grace) {
		return true
	}
	sending(syscall.SIGKILL)
	_ = p.proc.Signal(syscall.SIGKILL)
	return p.waits(context.WithoutCancel(ctx), afterKill)
}

// waits reports whether the agent ends within d.
func (p *Process) waits(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	default:
	}
	select {
	case <-p.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
