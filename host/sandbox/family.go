package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
)

// family are the processes of a local box: those known, those that bear its mark, and all of their sessions and
// descendants.
type family struct {
	mark  []byte // an entry of the environment
	dir   string // the box's folder, without links
	known map[Process]bool
}

// end kills the processes and returns when they are gone. A child may leave its parent's session, and then lose its
// parent, so what was seen once is looked for until it is gone.
func (f *family) end(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		alive, err := f.alive()
		if err != nil || len(alive) == 0 {
			return err
		}
		for _, p := range alive {
			f.known[p] = true
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %d: %w", p.PID, err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d processes are still there: %w", len(alive), ctx.Err())
		}
	}
}

// alive are those of the family that live.
func (f *family) alive() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []procfs.Stat
	ours := map[int]bool{}
	// A session's id is not given away again while somebody is in it, so a known leader's number stands for its
	// session even when the leader is gone, unless another process has the number now.
	for p := range f.known {
		ours[p.PID] = true
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue // no process, or this one, which an agent may have started
		}
		s, there, err := readStat(pid)
		if err != nil || !there || !s.Alive() {
			continue
		}
		all = append(all, s)
		if ours[pid] && !f.known[processOf(s)] {
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
	var alive []Process
	for _, s := range all {
		if ours[s.PID] {
			alive = append(alive, processOf(s))
		}
	}
	return alive, nil
}

// variable matches the name in an entry of an environment. Shells set some variables even where they are given none.
var (
	variable  = regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_]*=`)
	shellsOwn = []string{"PWD=", "OLDPWD=", "SHLVL=", "_="}
)

// execTime is longer than a process has no environment while another program takes its place.
const execTime = 5 * time.Millisecond

// marked reports whether a process was started in the box: it has the box's mark in its environment. One that has no
// environment, because it has dropped it or written its title over it, is the box's where its folder, its root or its
// program is in the box. The folder alone proves nothing: the box's user may stand there with a shell.
func (f *family) marked(pid int) bool {
	marked, bare := f.environment(pid)
	if !bare || !f.within(pid) {
		return marked
	}
	time.Sleep(execTime)
	marked, bare = f.environment(pid)
	return marked || bare
}

// environment reports whether the process has the mark in its environment, and whether it has none but what a shell
// sets. One that has ended, or is another user's, has neither.
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

// within reports whether the process stands in the box, or its program is there.
func (f *family) within(pid int) bool {
	for _, link := range []string{"cwd", "root", "exe"} {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, link))
		if err == nil && (to == f.dir || strings.HasPrefix(to, f.dir+"/")) {
			return true
		}
	}
	return false
}
