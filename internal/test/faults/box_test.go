package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/nosyscall"
)

// boxFaults are the faults of a box: it stops the runner's processes, has no room for them, and reads nothing of
// what they print.
var boxFaults = []fault{
	{
		name: "worker: STOP",
		on:   at(beforeAgent, midStream, lastSync), slow: 7 * time.Second, // five looks, and it is continued
		hit: func(s *scene, _ moment) { kill(s.worker(), syscall.SIGSTOP) },
	},
	{
		name: "worker: STOP, then KILL of the keeper", on: at(midStream, lastSync),
		exit: func(moment, string) int { return -1 },
		hit: func(s *scene, _ moment) {
			s.first = s.worker()
			kill(s.first, syscall.SIGSTOP)
			kill(s.keeper(), syscall.SIGKILL)
		},
	},
	{
		name: "runner: STOP of keeper and worker for eight seconds", on: at(midStream, lastSync), slow: 8 * time.Second,
		hit: func(s *scene, _ moment) {
			s.first = s.worker()
			kill(s.keeper(), syscall.SIGSTOP)
			kill(s.first, syscall.SIGSTOP)
		},
		mend: later(8*time.Second, func(s *scene) {
			kill(s.keeper(), syscall.SIGCONT)
			kill(s.first, syscall.SIGCONT)
		}),
		then: func(s *scene) { s.sameWorker() },
	},
	{
		name: "box: frozen for nine seconds, --stall-timeout 6s", on: at(beforeLine, midStream), slow: 9 * time.Second,
		prep: func(s *scene) {
			s.args = append(s.args, "--stall-timeout", "6s")
			s.wrap = s.freezable()
		},
		hit: func(s *scene, _ moment) {
			s.first = s.worker()
			s.freeze(true)
			time.Sleep(9 * time.Second) // this is the fault
			s.freeze(false)
			time.Sleep(1500 * time.Millisecond) // in which the worker looks at an agent that still does nothing
		},
		then: func(s *scene) { s.sameWorker() },
	},
	{
		name: "agent: KILL does not end it, TERM to the runner",
		on:   at(midStream), keep: true, left: 1, slow: 7 * time.Second,
		prep: func(s *scene) { s.unkillable() },
		hit: func(s *scene, _ moment) {
			s.put(filepath.Join(s.group, "cgroup.procs"), strconv.Itoa(s.agent()))
			s.freeze(true)
			kill(s.keeper(), syscall.SIGTERM)
		},
		want: func(moment) string { return "cancelled" },
		exit: func(moment, string) int { return 1 }, // its own is not known
		then: func(s *scene) { s.freeze(false) },
	},
	{
		name: "agent: KILL does not end it, keeper and worker: KILL, then recover",
		on:   at(midStream), keep: true, gone: true, left: 1,
		slow: 8 * time.Second, exit: func(moment, string) int { return -1 },
		prep: func(s *scene) { s.unkillable() },
		hit: func(s *scene, _ moment) {
			worker := s.worker()
			s.put(filepath.Join(s.group, "cgroup.procs"), strconv.Itoa(s.agent()))
			s.freeze(true)
			kill(s.keeper(), syscall.SIGKILL)
			kill(worker, syscall.SIGKILL)
		},
		want: func(moment) string { return "orphaned: runner_lost" },
		then: func(s *scene) { s.freeze(false) },
	},
	{
		name: "process limit: full", on: from(beforeLine), slow: time.Second,
		prep: func(s *scene) { s.wrap = s.limited() },
		hit:  func(s *scene, m moment) { s.fillProcesses(m, 0) },
	},
	{
		name: "process limit: full for two seconds", on: at(beforeAgent), slow: 6 * time.Second,
		prep: func(s *scene) { s.wrap = s.limited() },
		hit:  func(s *scene, m moment) { s.fillProcesses(m, 0) },
		mend: later(2*time.Second, func(s *scene) { s.freeProcesses() }),
	},
	{
		name: "process limit: full for two seconds, worker: KILL",
		on:   at(midStream, midTool, lastSync), slow: 8 * time.Second,
		prep: func(s *scene) { s.wrap = s.limited() },
		hit: func(s *scene, m moment) {
			s.fillProcesses(m, 0)
			kill(s.worker(), syscall.SIGKILL)
		},
		mend: later(2*time.Second, func(s *scene) { s.freeProcesses() }),
	},
	{
		name: "process limit: room for a process, none for its threads, worker: KILL",
		on:   at(midStream, lastSync), slow: 8 * time.Second,
		prep: func(s *scene) { s.wrap = s.limited() },
		hit: func(s *scene, m moment) {
			worker := s.worker()
			kill(worker, syscall.SIGKILL)
			s.fillProcesses(m, 3)
		},
		mend: later(2*time.Second, func(s *scene) { s.freeProcesses() }),
	},
	{name: "stderr: nobody reads it", hit: func(*scene, moment) {}, prep: func(s *scene) { s.mute() }},
	{
		name: "terminal: held, and stops who writes from the background (tostop)",
		on:   at(beforeLine, midStream, beforeExit), slow: 5 * time.Second,
		prep: func(s *scene) {
			s.plan = slices.Insert(s.plan, slices.Index(s.plan, "call bash"), "flood 200000")
			s.holdTerminal()
		},
		hit: func(*scene, moment) {},
	},
	{
		name: "state folder: runs removed, worker: KILL", on: agentLives, hit: func(s *scene, _ moment) {
			record := filepath.Join(s.folder(), "run.json")
			s.until("a record that the keeper has", func() bool { return exists(record) })
			worker := s.worker()
			runs := filepath.Join(s.state, "runs") // into which a worker may write this very moment
			s.until("the folder is gone", func() bool { return os.RemoveAll(runs) == nil })
			kill(worker, syscall.SIGKILL)
		},
		prep: func(s *scene) { s.file = s.path("session.jsonl") },
	},
	{
		name: "kernel: no pidfd_open, worker: KILL", on: agentLives, prep: func(s *scene) { s.wrap = s.withoutPidfd() },
		hit: func(s *scene, _ moment) { kill(s.worker(), syscall.SIGKILL) },
	},
	{
		name: "kernel: no pidfd_open, worker: KILL, then TERM to the runner",
		on:   at(midStream, midTool), keep: true, want: cancelled,
		prep: func(s *scene) { s.wrap = s.withoutPidfd() },
		hit: func(s *scene, _ moment) {
			kill(s.worker(), syscall.SIGKILL)
			kill(s.keeper(), syscall.SIGTERM)
		},
	},
	{
		name: "server: down, TERM again and again, then recover",
		on:   at(midStream, lastSync), keep: true, gone: true, want: cancelled,
		slow: time.Second, exit: func(moment, string) int { return 75 },
		hit: func(s *scene, _ moment) {
			s.front.down()
			for n := 0; ; n++ {
				kill(s.keeper(), syscall.SIGTERM)
				select {
				case <-s.ended:
					return
				case <-time.After(100 * time.Millisecond): // a person's pace, or a supervisor's
				}
				if n > int(patience/(100*time.Millisecond)) {
					s.t.Fatal("the runner does not end")
				}
			}
		},
		mend: func(s *scene) { s.front.up(s.t) },
	},
}

// allFaults are all rows of the table.
func allFaults() []fault { return slices.Concat(table, wireTable, boxFaults, folderFaults) }

// missing prints by name what could not be played here: the kernel can't do it, or not for this user.
func (s *scene) missing(what string, err error) {
	s.t.Helper()
	fmt.Fprintf(os.Stderr, "NOT RUN: %s: %s: %v\n", s.t.Name(), what, err)
	s.t.Skipf("NOT RUN: %s: %v", what, err)
}

func (s *scene) put(path, text string) {
	s.t.Helper()
	s.try(os.WriteFile(path, []byte(text), 0))
}

// sameWorker checks that the worker was not replaced.
func (s *scene) sameWorker() {
	s.t.Helper()
	if log := s.stderr.String(); strings.Contains(log, "worker died") {
		s.t.Errorf("worker %d was replaced:\n%s", s.first, log)
	}
}

// mute gives the runner a stderr that is full and that nobody reads.
func (s *scene) mute() {
	r, w, err := os.Pipe()
	s.try(err)
	s.t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	fd := int(w.Fd()) // asked once: it makes the file a blocking one
	s.try(unix.SetNonblock(fd, true))
	fill(fd)
	s.try(unix.SetNonblock(fd, false))
	s.sink = w
}

func fill(fd int) {
	b := make([]byte, 4096)
	for _, size := range []int{len(b), 1} {
		for err := error(nil); err == nil; {
			_, err = unix.Write(fd, b[:size])
		}
	}
}

// holdTerminal runs the runner by hand, in a terminal that shows nothing more and that stops those who write to it
// from the background.
func (s *scene) holdTerminal() {
	master, slave, err := pty.Open()
	if err != nil {
		s.missing("a terminal", err)
	}
	s.t.Cleanup(func() { _, _ = master.Close(), slave.Close() })
	fd := int(slave.Fd())
	modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	s.try(err)
	modes.Lflag |= unix.TOSTOP
	s.try(unix.IoctlSetTermios(fd, unix.TCSETS, modes))
	s.try(unix.SetNonblock(fd, true))
	fill(fd)
	s.try(unix.SetNonblock(fd, false))
	s.sink, s.tty = slave, true
}

// noPidfdVar names the variable that makes the test binary another program, in a kernel without pidfd_open.
const noPidfdVar = "FAULTS_NO_PIDFD"

// withoutPidfd returns what a shell does to run the runner in a kernel without pidfd_open.
func (s *scene) withoutPidfd() string {
	self, err := os.Executable()
	s.try(err)
	return fmt.Sprintf(`%s=1 exec %s "$0" "$@"`, noPidfdVar, self)
}

// runWithoutPidfd becomes the program that the arguments name.
func runWithoutPidfd(args []string) int {
	runtime.LockOSThread() // the filter is this thread's, and what it executes has it
	err := nosyscall.Deny(unix.ENOSYS, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL)
	if err == nil {
		err = os.Unsetenv(noPidfdVar)
	}
	if err == nil {
		err = syscall.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "NOT RUN without pidfd_open:", err)
	return 1
}
