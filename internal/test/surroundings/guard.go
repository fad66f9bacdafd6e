package surroundings

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/procfs"
)

// guard starts the tests and returns their status when none of their processes is left.
func guard() (status int, err error) {
	runtime.LockOSThread()                 // the kernel kills the tests when the thread that started them ends
	signal.Notify(make(chan os.Signal, 1)) // all have their default in the tests, and do nothing here
	syscall.Umask(0o022)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("become subreaper: %w", err)
	}
	dir, err := os.MkdirTemp("", "arbe-test-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove(dir)) }()
	home := filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(home, 0o700), os.Chmod(dir, 0o755)); err != nil { // tests become other users, too
		return 0, err
	}
	cmd, err := self()
	if err != nil {
		return 0, err
	}
	cmd.Env = append(os.Environ(), roleVar+"="+roleTests, "HOME="+home, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go follow(os.Stdin, cmd.Process)
	for {
		pid, how := wait()
		if pid == cmd.Process.Pid {
			return how, endAll()
		}
	}
}

// wait waits for a child and returns its exit status, as a shell has it; pid is 0 where there is none.
func wait() (pid, status int) {
	var ws syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return 0, 0
		case ws.Signaled():
			return pid, 128 + int(ws.Signal())
		}
		return pid, ws.ExitStatus()
	}
}

// endFor is how long killed processes may take to end. One in a frozen cgroup does not end at all.
const endFor = 30 * time.Second

// endAll kills all descendants of this process, and returns when they are gone.
func endAll() error {
	late := time.AfterFunc(endFor, func() {
		fmt.Fprintln(os.Stderr, "surroundings: KILL does not end:", names(Descendants(os.Getpid())))
		syscall.Exit(1)
	})
	defer late.Stop()
	for {
		all := Descendants(os.Getpid())
		if len(all) == 0 {
			return nil
		}
		for _, st := range all {
			_ = syscall.Kill(st.PID, syscall.SIGKILL) // it may have ended
		}
		wait() // orphans become children of this process
	}
}

// Descendants are the processes below a process, those that have ended and that nobody has waited for among them.
func Descendants(pid int) (all []procfs.Stat) {
	children := map[int][]procfs.Stat{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // only a bad pattern is an error
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if st, err := procfs.Read(pid); err == nil {
			children[st.Parent] = append(children[st.Parent], st)
		}
	}
	all = slices.Clone(children[pid])
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].PID]...)
	}
	return all
}

// names returns the ids and command lines of processes.
func names(all []procfs.Stat) string {
	var list []string
	for _, st := range all {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", st.PID)) // none: it has ended meanwhile
		list = append(list, fmt.Sprintf("%d (%s)", st.PID, bytes.ReplaceAll(b, []byte{0}, []byte(" "))))
	}
	return strings.Join(list, ", ")
}

// remove removes the folder for temporary files, and before that what tests have mounted below it.
func remove(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			if err := unix.Unmount(f[4], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", f[4], err) // what is there may be somebody's files
			}
		}
	}
	return removeAll(dir)
}

// removeAll is os.RemoveAll, also for folders that a test has made unwritable.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(dir))
}
