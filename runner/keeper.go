package runner

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/runner/stdio"
)

// Keeper brings a run to its end whatever happens to its worker. It is small on purpose: it waits for processes,
// records the exits that no worker can, and starts the next worker, which gets the record of the run by open files: a
// folder that can't be read or written any more keeps no worker from ending the run. It uses no network, and has no
// secret but the job that it passes on.
type Keeper struct {
	Folder *runfolder.Folder // held
	// Worker returns the command of a worker. The Keeper adds to its ExtraFiles the socket between them, and then the
	// Folder's Files, which the worker keeps open as long as it lives. Its stderr becomes a pipe that never blocks, for
	// what Go prints in a crash.
	Worker func() *exec.Cmd
	// Job returns the job of the worker after so many restarts, which the worker gets once it is hidden. The worker
	// treats the signals that came before it as its own.
	Job func(restarts int, came []syscall.Signal) ([]byte, error)
	Log *slog.Logger
	// Live: the Keeper holds the agent's input open, until a worker has it closed.
	Live bool
	// Crash gets the stderr of a worker that crashed.
	Crash io.Writer
	// TTY is the terminal of a person at the agent's own interface; nil: none. The worker stays in its foreground. The
	// Keeper restores it after each worker.
	TTY *os.File

	orders   chan os.Signal // signals for the worker
	children chan os.Signal // CHLD: one signal for any number of children
	worker   int            // pid; 0 between two workers
	stopped  stillness      // of the worker
	policy   restarts
	image    *os.File // newImage
	noImage  bool     // this kernel has none
	givenUp  bool
	input    *stdio.Input     // nil: not open
	came     []syscall.Signal // orders so far: the next worker gets all, because a dead one may have missed some
}

// ErrGivenUp: no worker could bring the run to its end. Its folder keeps what is recorded.
var ErrGivenUp = errors.New("the runner's worker dies again and again")

// EnoughSignals is the number of orders to stop after which the runner stops at once.
const EnoughSignals = 3

// Keep runs workers until one has brought the run to its end, and returns the exit status that it reported.
func (k *Keeper) Keep() (status int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		// Without it the exit of an agent whose worker died is unknown. All else works.
		k.Log.Warn("become subreaper; the exit of an agent may stay unknown", "error", err)
	}
	stop := k.listen()
	defer stop()
	if k.Live {
		if k.input, err = stdio.OpenInput(k.Folder.Path); err != nil { // a worker holds it open, too
			k.Log.Warn("open the agent's input; a worker that dies ends it", "error", err)
		}
		defer k.input.Close() // nothing is left in it that the agent is to read
	}
	var was *unix.Termios
	if k.TTY != nil {
		if was, err = unix.IoctlGetTermios(int(k.TTY.Fd()), unix.TCGETS); err != nil {
			return 0, fmt.Errorf("read terminal state: %w", err)
		}
	}
	for {
		l := k.live()
		if was != nil {
			if err := stdio.Restore(k.TTY, was); err != nil {
				k.Log.Warn("restore terminal", "error", err)
			}
		}
		if l.reported {
			return l.status, nil
		}
		if status, ok := k.settled(); ok {
			return status, nil
		}
		wait, more := k.policy.next(l)
		switch {
		case l.err != nil:
			k.Log.Warn("start worker; retrying", "error", l.err, "again_in", wait)
		case l.stillborn():
			k.Log.Warn("worker died at its start; retrying", "exit", l.how.String(), "again_in", wait)
		default:
			k.Log.Warn("worker died; starting another, the agent keeps running",
				"exit", l.how.String(), "restarts", k.policy.all)
		}
		if !more && l.stillborn() && !k.givenUp {
			// The machine has had no room for a worker for minutes. The agent may use it up; without the agent a worker
			// can still end the run.
			k.Log.Error("ending the agent to make room for a worker")
			if err := k.endAgent(); err != nil {
				k.Log.Warn("end the agent", "error", err)
			}
			k.policy.again()
			more = true
		}
		if !more || l.stillborn() && len(k.came) >= EnoughSignals {
			return 0, k.giveUp()
		}
		k.pause(wait)
	}
}

// listen subscribes to the signals for the run and to CHLD. Each has its own channel, because a full one loses signals.
func (k *Keeper) listen() (stop func()) {
	k.orders, k.children = make(chan os.Signal, 16), make(chan os.Signal, 1)
	orders := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // else started by nohup
		orders = append(orders, syscall.SIGHUP)
	}
	signal.Notify(k.orders, orders...)
	signal.Notify(k.children, syscall.SIGCHLD)
	return func() {
		// The run is over. An order that comes before the process has exited must not end it with another status.
		signal.Ignore(orders...)
		signal.Stop(k.children)
	}
}

// life is the result of one worker.
type life struct {
	err      error // of its start
	how      outcome.Exit
	lasted   time.Duration
	asked    bool // it has asked for its job
	reported bool // it has brought the run to its end, with status
	status   int
}

// stillborn reports whether the worker exited before it asked for its job, mostly because it could not get its threads.
// A worker that was killed is not stillborn.
func (l life) stillborn() bool { return l.err != nil || !l.asked && l.how.Signal == 0 }

// live starts a worker and waits for its end.
func (k *Keeper) live() (l life) {
	began := runfolder.Clock()
	talk, err := k.start()
	if err != nil {
		return life{err: err}
	}
	talk.running.Go(talk.run)
	l.how = k.attend()
	if _, err := talk.stderr.WriteTo(k.Crash); err != nil {
		k.Log.Debug("read worker's stderr", "error", err)
	}
	if err := talk.close(); err != nil {
		k.Log.Debug("close the worker's socket", "error", err)
	}
	l.lasted, l.asked, l.reported, l.status = runfolder.Clock()-began, talk.asked, talk.ended, talk.status
	return l
}

// start starts a worker.
func (k *Keeper) start() (t *talk, err error) {
	if err := k.Folder.Restore(); err != nil {
		k.Log.Warn("restore the run's folder", "error", err)
	}
	job, err := k.Job(k.policy.all, k.came)
	if err != nil {
		return nil, err
	}
	t, its, err := newTalk(job)
	if err != nil {
		return nil, err
	}
	cmd := k.Worker()
	stderr, itsErr, err := newCrashPipe()
	if err != nil {
		return nil, errors.Join(err, its.Close(), t.conn.Close())
	}
	t.stderr, cmd.Stderr = stderr, itsErr
	t.closeInput = k.input.Close
	cmd.ExtraFiles = append(append(cmd.ExtraFiles, its), k.Folder.Files()...)
	// A group of its own: a key pressed in a terminal signals the whole foreground group, and the worker gets the
	// signal from the keeper, once. A stopped worker is continued when the keeper dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: k.TTY == nil, Pdeathsig: syscall.SIGCONT}
	if k.policy.all > 0 { // there may be an agent
		if i := k.hiddenImage(); i != nil {
			cmd.Path = fmt.Sprintf("/proc/self/fd/%d", i.Fd()) // as the child has it
		}
	}
	if err := errors.Join(cmd.Start(), its.Close(), itsErr.Close()); err != nil { // the worker has its own copies
		return nil, errors.Join(err, t.conn.Close(), stderr.Close())
	}
	k.worker, k.stopped = cmd.Process.Pid, stillness{}
	_ = cmd.Process.Release() // attend waits for it, as for all children
	return t, nil
}

// hiddenImage is the program image for workers that the agent can't read; nil: this kernel has none.
func (k *Keeper) hiddenImage() *os.File {
	if k.image == nil && !k.noImage {
		var err error
		if k.image, err = newImage(); err != nil {
			k.Log.Warn("make hidden image; this user's processes can read a new worker until it hides", "error", err)
		}
		k.noImage = k.image == nil
	}
	return k.image
}

// attend passes orders on until the worker has ended, and returns its exit.
func (k *Keeper) attend() outcome.Exit {
	var tick <-chan time.Time // only while the worker is stopped
	for {
		if k.stopped.is && tick == nil {
			ticker := time.NewTicker(lookEvery)
			defer ticker.Stop()
			tick = ticker.C
		}
		select {
		case sig := <-k.orders:
			k.forward(sig.(syscall.Signal))
		case <-k.children:
			if how, ended := k.reap(); ended {
				return how
			}
		case <-tick:
			k.move()
		}
	}
}

// pause waits before the next worker, and keeps the orders that come meanwhile. Children that end meanwhile stay
// zombies until the next worker runs.
func (k *Keeper) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case sig := <-k.orders:
			k.forward(sig.(syscall.Signal))
			if len(k.came) >= EnoughSignals {
				return
			}
		case <-timer.C:
			return
		}
	}
}

// forward passes a signal on to the worker, and keeps it for the next one: this one may be dead, or not listen yet.
func (k *Keeper) forward(sig syscall.Signal) {
	k.came = append(k.came, sig)
	if k.worker != 0 {
		_ = syscall.Kill(k.worker, sig) // not reaped yet, so the pid is still its own
		if k.stopped.is {
			_ = syscall.Kill(k.worker, syscall.SIGCONT)
		}
	}
}

// move continues a stopped worker, or replaces it.
func (k *Keeper) move() {
	if !k.stopped.is {
		return
	}
	st, err := procfs.Read(k.worker)
	switch k.stopped.look(runfolder.Clock(), err == nil && st.State == 'T') {
	case syscall.SIGCONT:
		k.Log.Warn("worker is stopped; continuing it")
		_ = syscall.Kill(k.worker, syscall.SIGCONT)
	case syscall.SIGKILL:
		k.Log.Error("worker is stopped and does not continue; replacing it")
		_ = syscall.Kill(k.worker, syscall.SIGKILL)
	}
}

// reap reaps all children that have ended: the worker, and orphans of the agent. worker: the worker was among them.
func (k *Keeper) reap() (how outcome.Exit, worker bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return how, worker
		}
		if ws.Stopped() {
			if pid == k.worker && !k.stopped.is {
				k.stopped = stillness{is: true, last: runfolder.Clock()}
			}
			continue
		}
		exit := outcome.ExitCode(ws.ExitStatus())
		if ws.Signaled() {
			exit = outcome.Signalled(int(ws.Signal()))
		}
		if pid == k.worker {
			how, worker, k.worker = exit, true, 0
			continue
		}
		k.adopted(pid, exit)
	}
}

// adopted records the exit of an orphan if it is the agent and no worker has recorded its exit.
func (k *Keeper) adopted(pid int, exit outcome.Exit) {
	if k.givenUp {
		return // the keeper itself ended it: its own exit stays unknown
	}
	if err := k.Folder.Restore(); err != nil {
		k.Log.Warn("restore the run's folder", "error", err)
	}
	facts, err := k.Folder.Facts()
	if err != nil {
		k.Log.Warn("read facts", "error", err)
		return
	}
	p := runfolder.Replay(facts)
	if p.Spawned == nil || p.Spawned.PID != pid || p.Exit != nil {
		return // another process that the agent left
	}
	if err := k.Folder.Note(runfolder.Fact{Fact: runfolder.FactExited, Exit: &exit}); err != nil {
		k.Log.Warn("record the agent's exit", "exit", exit.String(), "error", err)
	}
}

// settled returns the status of a run whose worker died after the terminal was delivered.
func (k *Keeper) settled() (status int, ok bool) {
	facts, err := k.Folder.Facts()
	p := runfolder.Replay(facts)
	switch {
	case err != nil:
		return 0, false
	case p.Delivered && p.NotStarted != nil:
		return p.NotStarted.Status, true
	case p.Delivered && p.Decided != nil && p.Decided.Verdict != nil:
		return p.Decided.Verdict.ExitStatus(), true
	}
	return 0, false
}

// giveUp ends the agent, which no worker watches any more, and its leftover processes.
func (k *Keeper) giveUp() error {
	return errors.Join(ErrGivenUp, k.endAgent())
}

// endAgent ends the agent and its leftover processes. The agent's own exit stays unknown.
func (k *Keeper) endAgent() error {
	k.givenUp = true
	rec, err := k.Folder.Record()
	if err != nil {
		return err
	}
	endAgent(rec, k.Folder, []int{os.Getpid()}, k.Log)
	for began := time.Now(); k.drain() && time.Since(began) < stopTime; {
		time.Sleep(sweepEvery) // until the agent is reaped
	}
	return nil
}

const sweepEvery = 20 * time.Millisecond

// drain reaps the children that have ended, and reports whether the agent still runs.
func (k *Keeper) drain() bool {
	k.reap()
	rec, err := k.Folder.Record()
	if err != nil {
		return false
	}
	facts, err := k.Folder.Facts()
	return err == nil && rec.AgentLives(runfolder.Replay(facts))
}

// endAgent ends the agent of a run without a worker, and its leftover processes.
func endAgent(rec runfolder.Record, folder *runfolder.Folder, roots []int, log *slog.Logger) {
	facts, err := folder.Facts()
	if err != nil {
		log.Warn("read facts", "error", err)
	}
	spec, err := harness.Lookup(rec.Harness)
	if err != nil {
		log.Warn("look up the run's harness", "error", err)
		return
	}
	p := runfolder.Replay(facts)
	note := func(f runfolder.Fact) {
		if err := folder.Note(f); err != nil {
			log.Warn("record fact", "fact", f.Fact, "error", err)
		}
	}
	if rec.AgentLives(p) {
		log.Info("ending the agent of a run without a runner", "pid", p.Spawned.PID)
		unknown := func() (outcome.Exit, bool) { return outcome.Exit{}, false }
		a, err := harness.Adopt(p.Spawned.PID, p.Spawned.Ticks, unknown)
		if err == nil {
			stopAdopted(a, rec.Stop(spec), note)
		}
	}
	tree := harness.Tree{Roots: roots, Except: append([]int{os.Getpid()}, roots...), Mark: rec.Instance}
	endTree(tree, log)
}
