package runner

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/outcome"
)

// How often a worker is brought back, and with what waits between. A worker that dies again and again is not mended by one more; one that has lived for a
// while is.
const (
	maxRestarts     = 10
	steadyFor       = time.Minute
	firstRestart    = 50 * time.Millisecond
	slowestRestart  = 5 * time.Second
	keeperStopGrace = grace
)

// Keeper sees a run through whatever happens to its worker. It is small on purpose: it waits for processes, writes down how those ended that the
// worker can't, and starts the worker again. It has no network and no secrets but the job that it hands on.
type Keeper struct {
	Folder *Folder
	// Worker is the command of the worker that follows so many others, and is to act as if it had got the signals that came before it. The Keeper adds
	// to its ExtraFiles the pipe that it reports on, and then the lock, which it is to keep as long as it lives, and closes the others when it has started.
	Worker func(restarts int, came []syscall.Signal) (*exec.Cmd, error)
	Log    *slog.Logger
	// TTY is the terminal of a person at the agent's own interface; nil where there is none. The worker uses it, so it stays in its foreground; and it is made what
	// it was when a worker is gone, however that went.
	TTY *os.File

	worker   int           // its pid, 0 between two
	began    time.Duration // when it began: clock
	restarts int           // in all
	inARow   int           // without one that lived for steadyFor
	givenUp  bool
	came     []syscall.Signal // for the worker: a dead one may not have heard it, and the next one is told of all
}

// ErrGivenUp says that no worker could bring the run to its end. What there is of it stays in its folder.
var ErrGivenUp = errors.New("the runner's worker dies again and again")

// Keep runs workers until one has brought the run to its end, and returns the exit status that it reported.
func (k *Keeper) Keep() (status int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		// Without it an agent whose worker dies is lost to us, and its end with it. All else works.
		k.Log.Warn("this process can't be the reaper of what the agent leaves", "error", err)
	}
	signals := make(chan os.Signal, 16)
	forward := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // nohup means it
		forward = append(forward, syscall.SIGHUP)
	}
	signal.Notify(signals, append(forward, syscall.SIGCHLD)...)
	defer signal.Stop(signals)

	var was *unix.Termios
	if k.TTY != nil {
		if was, err = unix.IoctlGetTermios(int(k.TTY.Fd()), unix.TCGETS); err != nil {
			return 0, fmt.Errorf("the terminal: %w", err)
		}
	}
	report, err := k.start()
	if err != nil {
		return 0, err
	}
	for {
		sig := (<-signals).(syscall.Signal)
		if sig != syscall.SIGCHLD {
			k.forward(sig)
			continue
		}
		how, ended := k.reap()
		if !ended {
			continue
		}
		if was != nil {
			if err := RestoreTerminal(k.TTY, was); err != nil {
				k.Log.Warn("the terminal is not what it was", "error", err)
			}
		}
		if status, ok := report(); ok {
			return status, nil
		}
		if status, ok := k.settled(); ok {
			return status, nil
		}
		if clock()-k.began > steadyFor {
			k.inARow = 0
		}
		k.restarts, k.inARow = k.restarts+1, k.inARow+1
		k.Log.Warn("the runner's worker died; the agent lives on", "how", how.String(), "restarts", k.restarts)
		if k.inARow > maxRestarts {
			return 0, k.giveUp()
		}
		time.Sleep(min(firstRestart<<(k.inARow-1), slowestRestart)) // children that end meanwhile are zombies until the next look
		if report, err = k.start(); err != nil {
			return 0, errors.Join(err, k.giveUp())
		}
	}
}

// start starts a worker. The returned func gives what it has reported, once it is dead.
func (k *Keeper) start() (report func() (int, bool), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd, err := k.Worker(k.restarts, k.came)
	if err == nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, w, k.Folder.Lock())
		// A group of its own: a key pressed in a terminal signals the whole foreground group, and the worker is to hear it from us, once.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: k.TTY == nil}
		err = cmd.Start()
	}
	if cmd != nil { // the worker has its own by now
		for _, f := range cmd.ExtraFiles {
			if f != k.Folder.Lock() && f != w {
				err = errors.Join(err, f.Close())
			}
		}
	}
	err = errors.Join(err, w.Close())
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	k.worker, k.began = cmd.Process.Pid, clock()
	// It is waited for by the loop, like everything else that ends below us.
	return func() (int, bool) {
		defer r.Close() // read only: nothing to lose
		b := make([]byte, 64)
		// Whoever else may still have the other end has nothing to say: the worker is dead, what it wrote is there.
		if err := unix.SetNonblock(int(r.Fd()), true); err != nil {
			return 0, false
		}
		n, err := unix.Read(int(r.Fd()), b)
		if err != nil || n <= 0 {
			return 0, false
		}
		status, err := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
		return status, err == nil
	}, nil
}

// Report tells the keeper, through the pipe that the worker got from it, that the run is through and with which status to exit.
func Report(pipe *os.File, status int) error {
	_, err := fmt.Fprintf(pipe, "%d\n", status)
	return errors.Join(err, pipe.Close())
}

// forward passes a signal on to the worker, and keeps it for the next one: this one may be dead, or too young to hear.
func (k *Keeper) forward(sig syscall.Signal) {
	k.came = append(k.came, sig)
	if k.worker != 0 {
		_ = syscall.Kill(k.worker, sig) // it is not reaped, so the pid is its own
	}
}

// reap waits for all children that have ended: the worker, and what was left to us. It reports whether the worker was among them.
func (k *Keeper) reap() (how outcome.Exit, worker bool) {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return how, worker
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

// adopted writes down how the agent ended, if it is the agent that has, and no worker could see it.
func (k *Keeper) adopted(pid int, exit outcome.Exit) {
	if k.givenUp {
		return // it is we who end it then: that says nothing of how it would have ended
	}
	facts, err := readFacts(k.Folder.Path)
	if err != nil {
		k.Log.Warn("the run's facts can't be read", "error", err)
		return
	}
	p := replay(facts)
	if p.spawned == nil || p.spawned.PID != pid || p.exit != nil {
		return // something that the agent left
	}
	if err := k.Folder.Note(Fact{Fact: FactExited, Exit: &exit}); err != nil {
		k.Log.Warn("the agent's end was not written down", "how", exit.String(), "error", err)
	}
}

// settled is the status of a run whose worker died when all was done.
func (k *Keeper) settled() (status int, ok bool) {
	facts, err := readFacts(k.Folder.Path)
	p := replay(facts)
	switch {
	case err != nil:
		return 0, false
	case p.delivered && p.notStarted != nil:
		return p.notStarted.Status, true
	case p.delivered && p.decided != nil && p.decided.Verdict != nil:
		return p.decided.Verdict.ExitStatus(), true
	}
	return 0, false
}

// giveUp ends the agent, which nobody watches any more, and what it left.
func (k *Keeper) giveUp() error {
	k.givenUp = true
	rec, err := readRecord(k.Folder.Path)
	if err != nil {
		return errors.Join(ErrGivenUp, err)
	}
	endAgent(rec, k.Folder, []int{os.Getpid()}, k.Log)
	for began := time.Now(); k.drain() && time.Since(began) < farewell; {
		time.Sleep(sweepEvery) // until the agent is reaped
	}
	return ErrGivenUp
}

const sweepEvery = 20 * time.Millisecond

// drain reaps what has ended and reports whether there is more to come.
func (k *Keeper) drain() bool {
	k.reap()
	rec, err := readRecord(k.Folder.Path)
	if err != nil {
		return false
	}
	facts, err := readFacts(k.Folder.Path)
	return err == nil && rec.agentLives(replay(facts))
}

// endAgent ends the agent of a run that has no worker, and all that it left.
func endAgent(rec Record, folder *Folder, roots []int, log *slog.Logger) {
	facts, err := readFacts(folder.Path)
	if err != nil {
		log.Warn("the run's facts can't be read", "error", err)
	}
	spec, err := harness.Lookup(rec.Harness)
	if err != nil {
		log.Warn("the run's harness is not known here", "error", err)
		return
	}
	p := replay(facts)
	note := func(f Fact) {
		if err := folder.Note(f); err != nil {
			log.Warn("a fact was not written down", "fact", f.Fact, "error", err)
		}
	}
	if rec.agentLives(p) {
		log.Info("ending the agent of a run that has no runner", "pid", p.spawned.PID)
		a, err := harness.Adopt(p.spawned.PID, p.spawned.Ticks, func() (outcome.Exit, bool) { return outcome.Exit{}, false })
		if err == nil {
			stopAdopted(a, spec, note)
		}
	}
	tree := harness.Tree{Roots: roots, Except: append([]int{os.Getpid()}, roots...), Mark: rec.Instance}
	endTree(tree, log)
}
