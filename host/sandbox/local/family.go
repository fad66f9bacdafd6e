package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/kit"
	"arbe.0sk.ar/runner/internal/procfs"
)

// family is the set of a local box's processes: the known ones, those with its mark, and their sessions and
// descendants.
type family struct {
	mark  []byte // an entry of the environment
	dir   string // the box's folder, without links
	known map[sandbox.Process]bool
}

// killTimeout bounds the wait for killed processes to end.
const killTimeout = 30 * time.Second

// end kills the processes and returns when they are gone, or when some are left for longer than killTimeout. The look
// before that, which takes its time on a busy machine, does not count. A child may leave its parent's session and then
// lose its parent, so end remembers each process that it has seen.
func (f *family) end(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var late <-chan time.Time // nil until they have been killed
	for {
		alive, err := f.alive()
		if err != nil || len(alive) == 0 {
			return err
		}
		left := fmt.Errorf("%d processes are still running after SIGKILL", len(alive))
		select {
		case <-late:
			return fmt.Errorf("%w, after %v", left, killTimeout)
		default:
		}
		for _, p := range alive {
			f.known[p] = true
			if err := kill(p.PID); err != nil {
				return err
			}
		}
		if late == nil {
			timer := time.NewTimer(killTimeout)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", left, ctx.Err())
		}
	}
}

// kill kills a process; one that is gone is no error.
func kill(pid int) error {
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %d: %w", pid, err)
	}
	return nil
}

// alive returns the processes of the family that are alive.
func (f *family) alive() ([]sandbox.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []procfs.Stat
	ours := map[int]bool{}
	// The kernel does not reuse a session's id while a process is in it. So a known leader's number names its session
	// even if the leader is gone, unless another process has the number now.
	for p := range f.known {
		ours[p.PID] = true
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue // no process, or this process, which an agent may have started
		}
		s, there, err := readStat(pid)
		if err != nil || !there || !s.Alive() {
			continue
		}
		all = append(all, s)
		if ours[pid] && !f.known[kit.ProcessOf(s)] {
			delete(ours, pid)
		}
		if f.marked(pid) {
			ours[pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if !ours[s.PID] && (ours[s.Parent] || ours[s.Session]) {
				ours[s.PID], grown = true, true
			}
		}
	}
	var alive []sandbox.Process
	for _, s := range all {
		if ours[s.PID] {
			alive = append(alive, kit.ProcessOf(s))
		}
	}
	return alive, nil
}

// variable matches the name in an entry of an environment. shellsOwn are set by shells that start without any.
var (
	variable  = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*=`)
	shellsOwn = []string{"PWD=", "OLDPWD=", "SHLVL=", "_="}
)

// execTime exceeds the time that a process has no environment during exec.
const execTime = 5 * time.Millisecond

// marked reports whether a process was started in the box: it has the box's mark in its environment. A process without
// an environment, because it has dropped it or written its title over it, counts if its folder, its root or its program
// is in the box. With an environment the folder alone proves nothing: a user may have opened a shell there.
func (f *family) marked(pid int) bool {
	marked, bare := f.environment(pid)
	if !bare || !f.within(pid) {
		return marked
	}
	time.Sleep(execTime)
	marked, bare = f.environment(pid)
	return marked || bare
}

// environment reports whether the process has the mark in its environment, and whether its environment is bare: empty,
// or set by a shell only. For a process that has ended, or of another user, both are false.
func (f *family) environment(pid int) (marked, bare bool) {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false, false
	}
	bare = true
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, f.mark) {
			return true, false
		}
		name := variable.Find(entry)
		bare = bare && (name == nil || slices.Contains(shellsOwn, string(name)))
	}
	return false, bare
}

// within reports whether the folder, the root or the program of the process is in the box.
func (f *family) within(pid int) bool {
	for _, link := range []string{"cwd", "root", "exe"} {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, link))
		if err == nil && (to == f.dir || strings.HasPrefix(to, f.dir+"/")) {
			return true
		}
	}
	return false
}

// detachedFile lists the detached processes of a box, for Destroy: a line of JSON for each.
const detachedFile = "detached"

func (b *box) noteDetached(p sandbox.Process) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(b.dir, detachedFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

func (b *box) readDetached() ([]sandbox.Process, error) {
	data, err := os.ReadFile(filepath.Join(b.dir, detachedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var procs []sandbox.Process
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var p sandbox.Process
		// A torn line is left of a Detach that failed, which has killed its process. No process outlives its boot.
		if json.Unmarshal(lines.Bytes(), &p) == nil && sameBoot(p) {
			procs = append(procs, p)
		}
	}
	return procs, err
}

// sameBoot reports whether p was started since this machine's last boot; true if that is unknown.
func sameBoot(p sandbox.Process) bool {
	if p.Boot == "" {
		return true
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return err != nil || strings.TrimSpace(string(boot)) == p.Boot
}

// readStat reads the stat of a process. there is false if no such process exists.
func readStat(pid int) (s procfs.Stat, there bool, err error) {
	s, err = procfs.Read(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return procfs.Stat{}, false, nil
	}
	return s, err == nil, err
}
