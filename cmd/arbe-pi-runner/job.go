package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// job is what one process of a run hands on to the next: all that the user said, tokens included. It never travels in
// arguments or an environment, which others on the machine can read: the keeper has it in memory of its own, and
// gives it to a worker that has hidden.
type job struct {
	Args    []string // the command line, as the user gave it
	Environ []string // the environment, as the user gave it
	RunID   string
	State   string
	Cwd     string           // where the agent works
	Session string           // the session file; "" for a new one
	Prompt  string           // "" where the thread has it
	PTY     bool             // a person has the agent's own interface in the terminal
	Procs   int              // processors that Go would use here
	Keeper  int              // the keeper's process id, for a worker
	Worker  int              // how many workers there were before
	Signals []syscall.Signal // that came before this one
}

// The processes of a run, as the first argument names them, and the files that they inherit.
const (
	argKeep = "keep"
	argWork = "work"

	fdJob    = 3 // a keeper's
	fdStderr = 3 // a worker's: the runner's own
	fdKeeper = 4 // a worker's
	fdLock   = 5 // a worker's
)

// send puts the job into a file without a name.
func (j job) send() (*os.File, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("job", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "job")
	if _, err := f.Write(b); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

// receiveJob takes the job that the keeper was started with.
func receiveJob() (job, error) {
	var j job
	f := inherited(fdJob, "job")
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return j, fmt.Errorf("no job: %w", err)
	}
	return j, json.Unmarshal(b, &j)
}

// inherited is a file that the process before has left open for us. The agent must not inherit it in turn.
func inherited(fd int, name string) *os.File {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

// cleanEnviron is an environment without what must not be read there.
func cleanEnviron(environ []string) []string {
	var clean []string
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); runner.AgentMaySee(name) {
			clean = append(clean, kv)
		}
	}
	return clean
}

// self is this program, also when its file has been replaced.
const self = "/proc/self/exe"

// become turns this process into the run's keeper. The environment that it was started with, tokens and all, goes with
// the old image: nothing that a program does to its environment changes what /proc shows of the first one.
func (j job) become() error {
	j.Procs = runtime.GOMAXPROCS(0)
	f, err := j.send()
	if err != nil {
		return err
	}
	if err := unix.Dup3(int(f.Fd()), fdJob, 0); err != nil && int(f.Fd()) != fdJob { // without close-on-exec
		return err
	}
	if int(f.Fd()) == fdJob {
		if _, err := unix.FcntlInt(fdJob, unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	err = unix.Exec(self, []string{os.Args[0], argKeep, j.RunID}, withProcs(cleanEnviron(os.Environ()), keeperProcs))
	return fmt.Errorf("start the keeper: %w", err)
}

// Processors that Go uses in a run's processes, at most. More of them would want more threads. A process is told in
// its environment: to change it later costs memory.
const (
	keeperProcs = 1
	workerProcs = 4
	procsVar    = "GOMAXPROCS"
)

// withProcs returns an environment for a runner process that uses so many processors.
func withProcs(environ []string, n int) []string {
	is := func(kv string) bool { return strings.HasPrefix(kv, procsVar+"=") }
	return append(slices.DeleteFunc(slices.Clone(environ), is), procsVar+"="+strconv.Itoa(n))
}

// settle makes this process what it stays: hidden, and with the threads that it will need.
func settle(threads int) {
	runner.Hide()
	runner.WarmUp(threads)
	// The terminal may stop processes that write to it from the background (stty tostop). The agent gets the
	// signal's default back.
	signal.Ignore(syscall.SIGTTOU)
}

// flushFor is how long the last lines of the log may take to be written.
const flushFor = time.Second

// keep is the keeper's life.
func keep(stderr io.Writer) int {
	settle(runner.KeeperThreads)
	log, flush := cmdline.Relay(stderr)
	defer flush(flushFor)
	j, err := receiveJob()
	if err != nil {
		fmt.Fprintln(log, "arbe-pi-runner: keep:", err)
		return cmdline.StatusUsage
	}
	status, err := keepJob(j, log)
	if err != nil {
		fmt.Fprintln(log, "arbe-pi-runner:", err)
	}
	return status
}

func keepJob(j job, stderr io.Writer) (int, error) {
	log := cmdline.Logger(stderr, false).With("run", j.RunID)
	getenv := j.getenv
	folder, err := runfolder.New(j.State, getenv("ARBE_THREAD_ID"), j.RunID)
	var busy *runfolder.BusyError
	if errors.As(err, &busy) {
		return runner.StatusConfig, err
	}
	if err != nil {
		log.Warn("the state folder can't be used; what is known of this run is kept elsewhere", "state", j.State,
			"error", err)
		if j.State, folder, err = elsewhere(getenv("ARBE_THREAD_ID"), j.RunID, err); err != nil {
			return runner.StatusConfig, err
		}
	}
	defer folder.Close() // the facts are synced, and the lock goes with the process
	if folder.Used() {
		return runner.StatusConfig, fmt.Errorf("%w: run %s was begun on this machine already", runner.ErrTaken, j.RunID)
	}
	k := runner.Keeper{Folder: folder, Log: log, Crash: stderr}
	if j.PTY {
		k.TTY = os.Stdin
	}
	k.Job = func(restarts int, came []syscall.Signal) ([]byte, error) {
		j.Keeper, j.Worker, j.Signals = os.Getpid(), restarts, came
		return json.Marshal(j)
	}
	k.Worker = func() *exec.Cmd {
		cmd := exec.Command(self, argWork, j.RunID)
		cmd.Args[0], cmd.Env = os.Args[0], withProcs(os.Environ(), min(j.Procs, workerProcs))
		cmd.Stdout, cmd.ExtraFiles = os.Stdout, []*os.File{os.Stderr}
		if j.PTY {
			cmd.Stdin = os.Stdin
		}
		return cmd
	}
	status, err := k.Keep()
	if err != nil {
		return exitUndelivered,
			fmt.Errorf("%w\nwhat there is of the run is in %s: arbe-pi-runner recover finishes it", err, folder.Path)
	}
	return status, nil
}

// elsewhere is a run's folder where the state folder, for want of room or of the right to write there, can't have it:
// in the folder for temporary files, or in memory.
func elsewhere(threadID, runID string, why error) (state string, folder *runfolder.Folder, err error) {
	for _, dir := range []string{os.TempDir(), "/dev/shm"} {
		if state, err = os.MkdirTemp(dir, "arbe-state-"); err == nil {
			folder, err = runfolder.New(state, threadID, runID)
		}
		if err == nil {
			return state, folder, nil
		}
		why = errors.Join(why, err)
	}
	return "", nil, why
}

// work is a worker's life. What it returns is reported to the keeper; a worker that dies without a report is followed
// by another.
func work(stdout io.Writer) int {
	settle(runner.WorkerThreads)
	stderr := inherited(fdStderr, "stderr")
	log, flush := cmdline.Relay(stderr)
	defer flush(flushFor)
	if err := runner.CrashesFreely(); err != nil {
		fmt.Fprintln(log, "arbe-pi-runner: work:", err)
	}
	keeper, lock := runner.NewHandover(inherited(fdKeeper, "keeper")), inherited(fdLock, "lock")
	b, err := keeper.Job()
	var j job
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err != nil {
		fmt.Fprintln(log, "arbe-pi-runner: work:", err)
		return 1
	}
	_, byHand := cmdline.Terminal(stderr)
	p := program{
		stdout: stdout, stderr: log, environ: j.Environ,
		job: &j, lock: lock, keeper: keeper, byHand: byHand, screen: stderr,
	}
	status := p.run(j.Args)
	if err := keeper.Report(status); err != nil {
		fmt.Fprintln(log, "arbe-pi-runner: report to the keeper:", err)
	}
	return status
}

func (j job) getenv(name string) string { return lookup(j.Environ, name) }

// lookup is a variable's value in an environment, "" where it is not there.
func lookup(environ []string, name string) string {
	for _, kv := range environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}
