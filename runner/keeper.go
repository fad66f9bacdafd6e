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
)

// Keeper sees a run through whatever happens to its worker. It is small on purpose: it waits for processes, writes down how those ended that the
// worker can't, and starts the worker again. It has no network and no secrets but the job that it hands on.
type Keeper struct {
	Folder *Folder
	// Worker is the command of a worker. The Keeper adds to its ExtraFiles the socket that they talk through, and
	// then the lock, which the worker is to keep as long as it lives; and it makes its stderr a pipe that never holds
	// it, for what Go prints when it crashes.
	Worker func() *exec.Cmd
	// Job is what the worker that follows so many others gets once it is hidden; it is to act as if it had got the
	// signals that came before it.
	Job func(restarts int, came []syscall.Signal) ([]byte, error)
	Log *slog.Logger
	// Crash gets what a worker printed as it crashed.
	Crash io.Writer
	// TTY is the terminal of a person at the agent's own interface; nil where there is none. The worker uses it, so it stays in its foreground; and it is made what
	// it was when a worker is gone, however that went.
	TTY *os.File

	orders   chan os.Signal // for the worker
	children chan os.Signal // CHLD: one stands for many
	worker   int            // its pid, 0 between two
	stopped  stillness      // of the worker
	policy   restarts
	image    *image
	noImage  bool     // there can be none here
	record   *os.File // run.json, once a worker has written it
	givenUp  bool
	came     []syscall.Signal // orders so far: the next worker gets all, for a dead one may have missed some
}

// ErrGivenUp says that no worker could bring the run to its end. What there is of it stays in its folder.
var ErrGivenUp = errors.New("the runner's worker dies again and again")

// enough is the number of orders after which the runner stops at once.
const enough = 3

// Keep runs workers until one has brought the run to its end, and returns the exit status that it reported.
func (k *Keeper) Keep() (status int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		// Without it an agent whose worker dies is lost to us, and its end with it. All else works.
		k.Log.Warn("this process can't be the reaper of what the agent leaves", "error", err)
	}
	stop := k.listen()
	defer stop()
	var was *unix.Termios
	if k.TTY != nil {
		if was, err = unix.IoctlGetTermios(int(k.TTY.Fd()), unix.TCGETS); err != nil {
			return 0, fmt.Errorf("the terminal: %w", err)
		}
	}
	for {
		l := k.live()
		if was != nil {
			if err := restoreTerminal(k.TTY, was); err != nil {
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
			k.Log.Warn("the runner's worker can't be started", "error", l.err, "again_in", wait)
		case l.stillborn():
			k.Log.Warn("the runner's worker died as it started", "how", l.how.String(), "again_in", wait)
		default:
			k.Log.Warn("the runner's worker died; the agent lives on", "how", l.how.String(), "restarts", k.policy.all)
		}
		if !more && l.stillborn() && !k.givenUp {
			// No room for a worker, and none for minutes: the agent may have it. Without the agent the run has an end
			// still.
			k.Log.Error("ending the agent, so that there is room for a worker")
			if err := k.endAgent(); err != nil {
				k.Log.Warn("end the agent", "error", err)
			}
			k.policy.again()
			more = true
		}
		if !more || l.stillborn() && len(k.came) >= enough {
			return 0, k.giveUp()
		}
		k.pause(wait)
	}
}

// listen takes the signals that are for the run, and those about children. They don't share a channel: what is full
// loses.
func (k *Keeper) listen() (stop func()) {
	k.orders, k.children = make(chan os.Signal, 16), make(chan os.Signal, 1)
	orders := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // nohup means it
		orders = append(orders, syscall.SIGHUP)
	}
	signal.Notify(k.orders, orders...)
	signal.Notify(k.children, syscall.SIGCHLD)
	return func() {
		signal.Stop(k.orders)
		signal.Stop(k.children)
	}
}

// life is how one worker went.
type life struct {
	err      error // it could not be started
	how      outcome.Exit
	lasted   time.Duration
	asked    bool // it got as far as its job
	reported bool // it has brought the run to its end
	status   int
}

// stillborn reports that the worker ended by itself before it got its job: it could not have its threads, as it
// seems. One that was killed died.
func (l life) stillborn() bool { return l.err != nil || !l.asked && l.how.Signal == 0 }

// live starts a worker and sees it to its end.
func (k *Keeper) live() (l life) {
	began := clock()
	talk, err := k.start()
	if err != nil {
		return life{err: err}
	}
	go talk.run()
	l.how = k.attend()
	if _, err := talk.stderr.WriteTo(k.Crash); err != nil {
		k.Log.Debug("read what the worker printed", "error", err)
	}
	if err := talk.close(); err != nil {
		k.Log.Debug("close the worker's socket", "error", err)
	}
	if talk.record != nil {
		if k.record != nil {
			_ = k.record.Close() // read only: nothing to lose
		}
		k.record = talk.record
	}
	l.lasted, l.asked, l.reported, l.status = clock()-began, talk.asked, talk.ended, talk.status
	return l
}

// start starts a worker.
func (k *Keeper) start() (t *talk, err error) {
	if err := k.Folder.restore(k.record); err != nil {
		k.Log.Warn("restore the run's folder", "error", err)
	}
	job, err := k.Job(k.policy.all, k.came)
	if err != nil {
		return nil, err
	}
	t, its, err := newTalk(k.Folder.Path, job)
	if err != nil {
		return nil, err
	}
	cmd := k.Worker()
	stderr, itsErr, err := newCrashPipe()
	if err != nil {
		return nil, errors.Join(err, its.Close(), t.conn.Close())
	}
	t.stderr, cmd.Stderr = stderr, itsErr
	cmd.ExtraFiles = append(cmd.ExtraFiles, its, k.Folder.Lock())
	// A group of its own: a key pressed in a terminal signals the whole foreground group, and the worker is to hear
	// it from us, once.
	// A worker that somebody has stopped is for the keeper to continue: with its last breath, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: k.TTY == nil, Pdeathsig: syscall.SIGCONT}
	if k.policy.all > 0 { // there may be an agent
		if i := k.hiddenImage(); i != nil {
			cmd.Path = i.path()
		}
	}
	if err := errors.Join(cmd.Start(), its.Close(), itsErr.Close()); err != nil { // a worker has its own by now
		return nil, errors.Join(err, t.conn.Close(), stderr.Close())
	}
	k.worker, k.stopped = cmd.Process.Pid, stillness{}
	_ = cmd.Process.Release() // it is waited for by attend, like everything else that ends below us
	return t, nil
}

// hiddenImage is the program for workers that the agent can't look into, nil where there can be none.
func (k *Keeper) hiddenImage() *image {
	if k.image == nil && !k.noImage {
		var err error
		if k.image, err = newImage(); err != nil {
			k.Log.Warn("a new worker is open to this user's processes until it hides", "error", err)
		}
		k.noImage = k.image == nil
	}
	return k.image
}

// attend passes orders on until the worker is dead, and returns how it ended.
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

// pause waits before the next worker, and keeps the orders that come for it. Children that end meanwhile are zombies
// until the next look.
func (k *Keeper) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case sig := <-k.orders:
			k.forward(sig.(syscall.Signal))
			if len(k.came) >= enough {
				return
			}
		case <-timer.C:
			return
		}
	}
}

// forward passes a signal on to the worker, and keeps it for the next one: this one may be dead, or too young to hear.
func (k *Keeper) forward(sig syscall.Signal) {
	k.came = append(k.came, sig)
	if k.worker != 0 {
		_ = syscall.Kill(k.worker, sig) // it is not reaped, so the pid is its own
		if k.stopped.is {
			_ = syscall.Kill(k.worker, syscall.SIGCONT)
		}
	}
}

// move gets a worker to work that somebody has stopped.
func (k *Keeper) move() {
	if !k.stopped.is {
		return
	}
	st, err := procfs.Read(k.worker)
	switch k.stopped.look(clock(), err == nil && st.State == 'T') {
	case syscall.SIGCONT:
		k.Log.Warn("the runner's worker was stopped; continuing it")
		_ = syscall.Kill(k.worker, syscall.SIGCONT)
	case syscall.SIGKILL:
		k.Log.Error("the runner's worker was stopped and does not continue; replacing it")
		_ = syscall.Kill(k.worker, syscall.SIGKILL)
	}
}

// reap waits for all children that have ended: the worker, and what was left to us. It reports whether the worker was among them.
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
				k.stopped = stillness{is: true, last: clock()}
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

// adopted writes down how the agent ended, if it is the agent that has, and no worker could see it.
func (k *Keeper) adopted(pid int, exit outcome.Exit) {
	if k.givenUp {
		return // it is we who end it then: that says nothing of how it would have ended
	}
	if err := k.Folder.restore(k.record); err != nil {
		k.Log.Warn("restore the run's folder", "error", err)
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
	return errors.Join(ErrGivenUp, k.endAgent())
}

// endAgent ends the agent and what it left. How it would have ended is not known then.
func (k *Keeper) endAgent() error {
	k.givenUp = true
	rec, err := readRecord(k.Folder.Path)
	if err != nil {
		return err
	}
	endAgent(rec, k.Folder, []int{os.Getpid()}, k.Log)
	for began := time.Now(); k.drain() && time.Since(began) < farewell; {
		time.Sleep(sweepEvery) // until the agent is reaped
	}
	return nil
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
