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
	Path   string   // of the binary, as Find gave it
	Args   []string // without the binary
	Env    []string // the whole environment
	Dir    string
	Stdin  string // what it reads before end of input; "" for /dev/null
	Stdout *os.File
	Stderr *os.File
	TTY    *os.File // the agent's own terminal, instead of all three; nil for none
	Group  *Group   // the cgroup to start it in; nil for the runner's own

	// Spawned, where there is one, is told the process's id before the agent's first instruction. Should we die before it returns, there never is an agent.
	Spawned func(pid int)
}

// Process is a running agent: a child of ours, or one that an earlier process of ours has started.
type Process struct {
	proc *os.Process
	cmd  *exec.Cmd // nil where it is not our child
	done chan struct{}
	exit outcome.Exit
}

// Bounds of what the kernel, or another process, may take its time for.
const (
	afterKill = 1500 * time.Millisecond // a killed process to go; one that hangs in the kernel may never
	atTheGate = 30 * time.Second        // a new process to come to the gate, on a machine with no time to spare
)

// ErrNotReady says that the process that was to become the agent ended, or did nothing, before it could: the machine
// may have no room for its threads.
var ErrNotReady = errors.New("the agent's process did not begin")

// Busy reports whether the error of a Start is about what the machine lacks at present: processes, memory, open
// files. Later it may have them.
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

// agentOOMScore makes the agent the likelier victim when memory runs out: a runner that lives can say what happened.
const agentOOMScore = "500"

// Start starts c in a process group of its own. Of an error that is Busy a later Start may know nothing. Its output
// goes to files, not pipes: nobody's death stops it, and a grandchild that keeps the output open delays nothing.
func Start(c Command) (*Process, error) {
	if !mainCalled.Load() {
		return nil, ErrNoMain
	}
	gates, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	if err := unix.SetNonblock(gates[0], true); err != nil { // so that a read of it can be bounded
		return nil, errors.Join(err, unix.Close(gates[0]), unix.Close(gates[1]))
	}
	ours, its := os.NewFile(uintptr(gates[0]), "gate"), os.NewFile(uintptr(gates[1]), "gate")
	cmd, err := c.start(its, c.Group)
	if err != nil && c.Group != nil {
		cmd, err = c.start(its, nil) // a kernel or a sandbox that can't start a process in a cgroup
	}
	if err = errors.Join(err, its.Close()); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p := &Process{proc: cmd.Process, cmd: cmd, done: make(chan struct{})}
	// Raising it needs no privilege. Where it can't be done, nothing else is worse for it.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID()), []byte(agentOOMScore), 0)
	if c.Spawned != nil {
		c.Spawned(p.PID())
	}
	if err := errors.Join(open(ours, c.Path), ours.Close()); err != nil {
		_ = p.proc.Kill() // one that was not ready in time; all others end by themselves
		_ = cmd.Wait()    // why it is no agent is known
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.exit = waitNoReap(p.PID())
	}()
	return p, nil
}

// start starts the process that is to become the agent. It waits at the gate.
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
		// A terminal belongs to a session. Its leader has a group of its own, too; to ask for one besides is an error.
		cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = false, true, true
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

// Adopt takes a running process that is not our child. learn is asked how it ended once it has; it may wait a little, and false says that nobody
// knows. fs.ErrNotExist where the process is gone; ticks, from its Stat, tell it from another one that got its pid.
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

// inputFile is a file that has no name any more, ready to be read.
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

// waitNoReap waits until a child has ended and returns how. The child stays a zombie: if we die before it is written down how it ended, whoever
// inherits the zombie can still learn it.
func waitNoReap(pid int) outcome.Exit {
	// What waitid(2) fills in: the fields of siginfo_t for SIGCHLD, which x/sys leaves unnamed.
	var info struct {
		signo, errno, code int32
		_                  int32
		pid                int32
		uid                uint32
		status             int32
		_                  [128 - 28]byte
	}
	for {
		err := unix.Waitid(unix.P_PID, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return outcome.Exit{} // nobody knows
		}
		break
	}
	const exited, killed, dumped = 1, 2, 3 // CLD_…
	switch info.code {
	case exited:
		return outcome.ExitCode(int(info.status))
	case killed, dumped:
		return outcome.Signalled(int(info.status))
	}
	return outcome.Exit{}
}

// PID is the agent's process id.
func (p *Process) PID() int { return p.proc.Pid }

// Done is closed when the agent has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how the agent ended, once Done is closed; before that it is not known.
func (p *Process) Exit() outcome.Exit {
	select {
	case <-p.done:
		return p.exit
	default:
		return outcome.Exit{}
	}
}

// Release lets the kernel forget the agent. It is called when it is written down how the agent ended; of one that Stop
// could not end nothing is released.
func (p *Process) Release() {
	select {
	case <-p.done:
	default:
		return // to wait for it could take for ever
	}
	if p.cmd != nil {
		_ = p.cmd.Wait() // how it ended is known
	}
}

// Stop ends the agent: sig to it, and after grace (or when ctx is done) KILL. It returns when the agent has ended,
// and false a while after a KILL that did not end it. said gets each signal before it is sent. What the agent
// leaves behind is a Tree's to end.
func (p *Process) Stop(
	ctx context.Context, sig syscall.Signal, grace time.Duration, said func(syscall.Signal),
) (ended bool) {
	if p.waits(ctx, 0) {
		return true
	}
	said(sig)
	_ = p.proc.Signal(sig) // an error says that it has just ended, which is what we wait for
	if p.waits(ctx, grace) {
		return true
	}
	said(syscall.SIGKILL)
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
