package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// process is the command's process group, and the reading ends of its output.
type process struct {
	cmd    *exec.Cmd
	pipes  map[string]*os.File // by stream
	began  time.Time
	done   chan struct{} // closed when the first process has ended
	asked  chan struct{} // closed by cancel
	taken  chan struct{} // closed by kill
	cancel func()
	kill   func()
	mark   string // in the environment of all of the command's processes
}

// oomScore makes the command a likelier victim of the OOM killer than its supervisor, which can then report it.
const oomScore = "500"

// start starts the command.
func start(c Config) (*process, error) {
	p := &process{
		cmd: exec.Command(c.Argv[0], c.Argv[1:]...), pipes: map[string]*os.File{},
		done: make(chan struct{}), asked: make(chan struct{}), taken: make(chan struct{}),
	}
	p.cancel = sync.OnceFunc(func() { close(p.asked) })
	p.kill = sync.OnceFunc(func() { close(p.taken) })
	p.mark = rand.Text()
	p.cmd.Dir, p.cmd.Env = c.Dir, append(slices.Clip(c.Env), harness.MarkVar+"="+p.mark)
	if err := unix.Access(c.Dir, unix.X_OK); err != nil { // the error of Start does not show that it is the folder's
		return nil, &fs.PathError{Op: "chdir", Path: c.Dir, Err: err}
	}
	stdout, err := p.pipe(thread.StreamStdout)
	if err != nil {
		return nil, err
	}
	defer stdout.Close() // the process has its own
	stderr, err := p.pipe(thread.StreamStderr)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	defer stderr.Close() // as above
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	if c.Stdin != nil {
		p.cmd.Stdin = c.Stdin
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		// The kernel sends Pdeathsig when the thread ends that has started the process: this one ends after it.
		runtime.LockOSThread()
		err := p.cmd.Start()
		p.began = time.Now()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the exit is in ProcessState
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, p.close())
	}
	// Raising the score needs no privilege. A failure changes nothing else.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.cmd.Process.Pid), []byte(oomScore), 0)
	return p, nil
}

// pipe returns the writing end of a stream.
func (p *process) pipe(stream string) (*os.File, error) {
	r, w, err := os.Pipe()
	p.pipes[stream] = r
	if err != nil {
		delete(p.pipes, stream)
	}
	return w, err
}

// close closes the reading ends.
func (p *process) close() (err error) {
	for _, f := range p.pipes {
		err = errors.Join(err, f.Close())
	}
	return err
}

// wait passes the output on until the process has ended, and ends it where it has to. It returns the end, once the
// output is whole.
func (p *process) wait(ctx context.Context, c Config, out *output) thread.ExecFinished {
	var reading sync.WaitGroup
	for stream, r := range p.pipes {
		reading.Go(func() { read(r, stream, out) })
	}
	reaped := p.reap(c)
	end := p.attend(ctx, c)
	reaped()
	took := time.Since(p.began)
	// Processes that outlive the command may hold its output open for ever.
	late := time.AfterFunc(outputGrace, func() {
		for _, r := range p.pipes {
			_ = r.SetReadDeadline(time.Now()) // a pipe has deadlines
		}
	})
	reading.Wait()
	late.Stop()
	_ = p.close() // read only: nothing to lose
	out.close()
	end.DurationMs = took.Milliseconds()
	state := p.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		name := outcome.SignalName(int(status.Signal()))
		end.ExitSignal = &name
	} else {
		code := state.ExitCode()
		end.ExitCode = &code
	}
	return end
}

// attend returns when the process has ended. It ends it after its timeout, at the end of ctx, and when it is asked to.
func (p *process) attend(ctx context.Context, c Config) (end thread.ExecFinished) {
	var late <-chan time.Time
	if c.Timeout > 0 {
		timer := time.NewTimer(c.Timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-p.done:
		return end
	case <-late:
		end.TimedOut = true
	case <-p.asked:
		end.Cancelled = true
	case <-ctx.Done():
		end.Error = fmt.Sprintf("the supervisor of the command was asked to end: %v", context.Cause(ctx))
	case <-p.taken:
		p.signal(unix.SIGKILL)
		bound, stop := context.WithTimeout(context.WithoutCancel(ctx), afterKill)
		defer stop()
		p.tree(c).End(bound, 0)
		<-p.done
		return end
	}
	var tree sync.WaitGroup
	tree.Go(func() {
		bound, stop := context.WithTimeout(context.WithoutCancel(ctx), grace+afterKill)
		defer stop()
		// Each process gets one TERM: for many programs a second one is an order to end at once.
		if found, _ := p.tree(c).End(bound, grace); found == 0 {
			p.signal(unix.SIGTERM) // there is no /proc
		}
	})
	killing := time.NewTimer(grace)
	defer killing.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.signal(0) {
		select {
		case <-tick.C:
			continue
		case <-killing.C:
		case <-p.taken:
		}
		p.signal(unix.SIGKILL)
		break
	}
	tree.Wait()
	<-p.done
	return end
}

// afterKill bounds the wait for processes that were killed: one that hangs in the kernel may never end.
const afterKill = 2 * time.Second

// tree returns the command's processes, also those in process groups and sessions of their own.
func (p *process) tree(c Config) harness.Tree {
	t := harness.Tree{Roots: []int{p.cmd.Process.Pid}, Mark: p.mark}
	if c.Reaper {
		t.Roots, t.Except = []int{os.Getpid()}, []int{os.Getpid()}
	}
	return t
}

// reap reaps the orphans that a Config.Reaper inherits, until stop. The command's own process is its starter's.
func (p *process) reap(c Config) (stop func()) {
	if !c.Reaper {
		return func() {}
	}
	news := make(chan os.Signal, 1)
	signal.Notify(news, unix.SIGCHLD)
	quit := make(chan struct{})
	var reaping sync.WaitGroup
	reaping.Go(func() {
		for {
			select {
			case <-quit:
				return
			case <-news:
				p.reapEnded()
			}
		}
	})
	return func() {
		signal.Stop(news)
		close(quit)
		reaping.Wait()
	}
}

// reapEnded reaps the children that have ended, up to the command's own process.
func (p *process) reapEnded() {
	for {
		pid, _, err := harness.Ended(unix.P_ALL, 0, unix.WNOHANG)
		if err != nil || pid == 0 || pid == p.cmd.Process.Pid {
			return
		}
		if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != nil {
			return
		}
	}
}

// signal sends a signal to the process group. It returns false if the group has no process any more.
func (p *process) signal(sig unix.Signal) bool {
	return !errors.Is(unix.Kill(-p.cmd.Process.Pid, sig), unix.ESRCH)
}

// read passes a stream on until its end. After its deadline it takes what is there, and does not wait for more.
func read(r *os.File, stream string, out *output) {
	b := make([]byte, 32<<10)
	for {
		n, err := r.Read(b)
		out.write(stream, b[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			rest(r, stream, out)
		}
		if err != nil {
			return
		}
	}
}

// mostRest bounds the output that is taken after the deadline: a process may write for ever.
const mostRest = 1 << 20

func rest(r *os.File, stream string, out *output) {
	raw, err := r.SyscallConn()
	if err == nil {
		err = r.SetReadDeadline(time.Time{})
	}
	b := make([]byte, 32<<10)
	for n, sum := 1, 0; err == nil && n > 0 && sum < mostRest; sum += n {
		var rerr error
		err = raw.Read(func(fd uintptr) bool {
			n, rerr = unix.Read(int(fd), b)
			return true
		})
		if n > 0 && rerr == nil {
			out.write(stream, b[:n])
		} else {
			return
		}
	}
}

// unstarted is the end of a command that could not be started, with the status that a shell has for it.
func unstarted(err error) thread.ExecFinished {
	code := 126
	var path *fs.PathError
	inDir := errors.As(err, &path) && path.Op == "chdir"
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) && !inDir {
		code = 127
	}
	return thread.ExecFinished{ExitCode: &code, Error: err.Error()}
}
