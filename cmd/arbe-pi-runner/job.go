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
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/runner"
	"arbe.0sk.ar/runner/runner/runfolder"
)

// job is passed from one process of a run to the next: the user's command line and environment, tokens included. It
// never stands in arguments or an environment, which others on the machine can read. The keeper has it in its memory,
// and gives it to a worker that has hidden (runner.Hide).
type job struct {
	Args      []string // the user's command line
	Environ   []string // the user's environment
	RunID     string
	State     string
	Cwd       string           // where the agent works
	Session   string           // the session file; "" for a new one
	Prompt    string           // "" if the thread has it
	PTY       bool             // --pty
	Live      bool             // --live
	LogFormat string           // --log-format
	Procs     int              // processors that Go would use here
	Keeper    int              // the keeper's process id, for a worker
	Worker    int              // number of workers before this one
	Signals   []syscall.Signal // received before this process began

	Unwritable string // why the run can be recorded in memory alone; "": it is on disk
}

// The processes of a run, as the first argument names them, and the files that they inherit.
const (
	argKeep = "keep"
	argWork = "work"
	argExec = "supervise" // of a command (arbe exec)

	// A worker's.
	fdStderr = 3 // the runner's own
	fdKeeper = 4
	fdLock   = 5 // this and the next are the Files of the run's folder
	fdDir    = 6
	fdKept   = 7
)

// jobVar names the variable with the number of a keeper's file that has its job.
const jobVar = "RUNNER_JOB"

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

// receiveJob reads the keeper's job.
func receiveJob() (job, error) {
	var j job
	fd, err := strconv.Atoi(os.Getenv(jobVar))
	if err = errors.Join(err, os.Unsetenv(jobVar)); err != nil {
		return j, fmt.Errorf("no job: %w", err)
	}
	f := inherited(fd, "job")
	b, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return j, fmt.Errorf("no job: %w", err)
	}
	return j, json.Unmarshal(b, &j)
}

// inherited returns a file that the process before left open. The agent does not inherit it.
func inherited(fd int, name string) *os.File {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

// self is the path of this program, valid also after its file was replaced.
const self = "/proc/self/exe"

// become turns this process by exec into one with the arguments, which has the job. /proc shows the environment that a
// process began with, tokens included, whatever the process changes later; exec replaces it.
func (j job) become(argv ...string) error {
	j.Procs = runtime.GOMAXPROCS(0)
	f, err := j.send()
	if err != nil {
		return err
	}
	defer f.Close() // not earlier: a file that is not used any more is closed by the garbage collector
	// It keeps its number: another one may be a file of the Go runtime, which runs until the exec.
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil { // without close-on-exec
		return err
	}
	environ := with(cleanEnviron(os.Environ()), procsVar, strconv.Itoa(keeperProcs))
	err = unix.Exec(self, argv, with(environ, jobVar, strconv.Itoa(int(f.Fd()))))
	return fmt.Errorf("start %s: %w", argv[1], err)
}

// Processors that Go uses in a run's processes, at most: each takes a thread. A process gets the number in its
// environment, as a later change costs memory.
const (
	keeperProcs = 1
	workerProcs = 4
	procsVar    = "GOMAXPROCS"
)

// settle hides this process and starts the threads that it needs.
func settle(threads int) {
	runner.Hide()
	runner.WarmUp(threads)
	// The terminal may stop processes that write to it from the background (stty tostop). The agent gets the
	// signal's default back.
	signal.Ignore(syscall.SIGTTOU)
}

// flushFor bounds the time to write the last lines of the log.
const flushFor = time.Second

// keep runs the keeper.
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
	_, terminal := cmdline.Terminal(os.Stderr)
	log := cmdline.Log{Format: j.LogFormat, Terminal: terminal, Events: events}.New(stderr).With("run", j.RunID)
	getenv := j.getenv
	folder, err := newFolder(j.State, getenv("ARBE_THREAD_ID"), j.RunID)
	var busy *runfolder.BusyError
	if errors.As(err, &busy) {
		return runner.StatusConfig, err
	}
	if err != nil {
		log.Warn("state folder can't be used: this run is recorded elsewhere", "state", j.State,
			"error", err)
		if j.State, folder, err = elsewhere(getenv("ARBE_THREAD_ID"), j.RunID, err); err != nil {
			j.State, j.Unwritable = runfolder.Nowhere, fmt.Sprintf("the run can be recorded nowhere: %v", err)
			folder, err = runfolder.InMemory(getenv("ARBE_THREAD_ID"), j.RunID)
		}
		if err != nil {
			return runner.StatusConfig, err
		}
	}
	defer folder.Close() // the facts are synced, and the lock goes with the process
	if folder.Used() {
		return runner.StatusConfig, fmt.Errorf("%w: run %s was begun on this machine already", runner.ErrTaken, j.RunID)
	}
	k := runner.Keeper{Folder: folder, Log: log, Crash: stderr, Live: j.Live}
	if j.PTY {
		k.TTY = os.Stdin
	}
	k.Job = func(restarts int, came []syscall.Signal) ([]byte, error) {
		j.Keeper, j.Worker, j.Signals = os.Getpid(), restarts, came
		return json.Marshal(j)
	}
	k.Worker = func() *exec.Cmd {
		cmd := exec.Command(self, argWork, j.RunID)
		cmd.Args[0], cmd.Env = os.Args[0], with(os.Environ(), procsVar, strconv.Itoa(min(j.Procs, workerProcs)))
		cmd.Stdout, cmd.ExtraFiles = os.Stdout, []*os.File{os.Stderr}
		if j.PTY {
			cmd.Stdin = os.Stdin
		}
		return cmd
	}
	status, err := k.Keep()
	if err != nil {
		return exitUndelivered,
			fmt.Errorf("%w\nthe run is recorded in %s: arbe-pi-runner recover finishes it", err, folder.Path)
	}
	return status, nil
}

// newFolder makes a run's folder, and holds it.
func newFolder(state, threadID, runID string) (*runfolder.Folder, error) {
	folder, err := runfolder.New(state, threadID, runID)
	if err != nil {
		return nil, err
	}
	if err := folder.Hold(); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// elsewhere makes a run's folder in the folder for temporary files, or in memory. It is for a state folder that is full
// or can't be written to.
func elsewhere(threadID, runID string, why error) (state string, folder *runfolder.Folder, err error) {
	for _, dir := range []string{os.TempDir(), "/dev/shm"} {
		if state, err = os.MkdirTemp(dir, "arbe-state-"); err == nil {
			folder, err = newFolder(state, threadID, runID)
		}
		if err == nil {
			return state, folder, nil
		}
		why = errors.Join(why, err)
	}
	return "", nil, why
}

// work runs a worker. The keeper gets its result. After a worker that dies without a result the keeper starts another.
func work(stdout io.Writer) int {
	settle(runner.WorkerThreads)
	stderr := inherited(fdStderr, "stderr")
	log, flush := cmdline.Relay(stderr)
	defer flush(flushFor)
	if err := runner.CrashesFreely(); err != nil {
		fmt.Fprintln(log, "arbe-pi-runner: work:", err)
	}
	keeper := runner.Handover{Conn: inherited(fdKeeper, "keeper")}
	lock, dir, kept := inherited(fdLock, "lock"), inherited(fdDir, "folder"), inherited(fdKept, "run")
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
	folder := runfolder.Inherit(runfolder.Path(j.State, j.getenv("ARBE_THREAD_ID"), j.RunID), lock, dir, kept)
	p := program{
		stdout: stdout, stderr: log, environ: j.Environ,
		job: &j, folder: folder, keeper: keeper, byHand: byHand, screen: stderr,
	}
	status := p.run(j.Args)
	if err := keeper.Report(status); err != nil {
		fmt.Fprintln(log, "arbe-pi-runner: report to the keeper:", err)
	}
	return status
}

func (j job) getenv(name string) string { return runner.Getenv(j.Environ, name) }

// rawJob is the encoding of a job. The user's strings are bytes: JSON strings would change those that are not UTF-8.
type rawJob struct {
	jobFields
	Args, Environ               [][]byte
	State, Cwd, Session, Prompt []byte
}

type jobFields job

// MarshalJSON keeps every byte of the user's strings.
func (j job) MarshalJSON() ([]byte, error) {
	raw := rawJob{
		jobFields: jobFields(j), Args: toBytes(j.Args), Environ: toBytes(j.Environ),
		State: []byte(j.State), Cwd: []byte(j.Cwd), Session: []byte(j.Session), Prompt: []byte(j.Prompt),
	}
	return json.Marshal(raw)
}

// UnmarshalJSON decodes what MarshalJSON returned.
func (j *job) UnmarshalJSON(b []byte) error {
	var raw rawJob
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*j = job(raw.jobFields)
	j.Args, j.Environ = toStrings(raw.Args), toStrings(raw.Environ)
	j.State, j.Cwd, j.Session, j.Prompt = string(raw.State), string(raw.Cwd), string(raw.Session), string(raw.Prompt)
	return nil
}

func toBytes(list []string) (all [][]byte) {
	for _, s := range list {
		all = append(all, []byte(s))
	}
	return all
}

func toStrings(list [][]byte) (all []string) {
	for _, b := range list {
		all = append(all, string(b))
	}
	return all
}
