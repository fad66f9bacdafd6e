package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/internal/procfs"
)

// MarkVar is the environment variable that marks all processes of one run. Children inherit it in any process group and
// session.
const MarkVar = "AGENT_RUN_INSTANCE"

// Tree is the set of an agent's processes: the agent, its tools, and their leftovers. All three agents start tools in
// process groups and sessions of their own, so neither identifies the tree. Three traces do, each of which a process
// can lose: descent from the agent or from the reaper of its orphans, the mark in the environment, and the cgroup.
type Tree struct {
	Roots  []int  // the agent, and the keeper, which reaps its orphans
	Except []int  // the runner's own processes among the roots and their descendants
	Mark   string // the value of MarkVar
	Group  *Group // nil: none
}

// Member is one process of a Tree.
type Member struct {
	PID   int
	Ticks uint64 // start; with the pid it names the process for good
	CPU   time.Duration
}

// Members returns the tree's live processes, without zombies: the roots first, unless they are in Except, and a process
// before those that descend from it, so that a signal for all does not reach it as the end of a child.
func (t Tree) Members() []Member {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // without /proc no process is found
	}
	stats, children := map[int]procfs.Stat{}, map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := procfs.Read(pid); err == nil {
			stats[pid] = st
			children[st.Parent] = append(children[st.Parent], pid)
		}
	}
	found, order := map[int]bool{}, []int(nil)
	add := func(pid int) {
		for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
			if p := queue[0]; !found[p] && !slices.Contains(t.Except, p) {
				found[p], order = true, append(order, p)
				queue = append(queue, children[p]...)
			}
		}
	}
	for _, root := range t.Roots {
		if slices.Contains(t.Except, root) {
			for _, child := range children[root] {
				add(child)
			}
		} else {
			add(root)
		}
	}
	for pid := range stats {
		if !found[pid] && t.marked(pid) {
			add(pid)
		}
	}
	for _, pid := range t.Group.members() {
		add(pid)
	}
	var members []Member
	for _, pid := range order {
		if st, ok := stats[pid]; ok && st.Alive() {
			members = append(members, Member{pid, st.Started, st.CPU})
		}
	}
	return members
}

// marked reports whether a process has the tree's mark. The environment of another user's process can't be read.
func (t Tree) marked(pid int) bool {
	if t.Mark == "" {
		return false
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	mark := []byte(MarkVar + "=" + t.Mark)
	return bytes.HasPrefix(env, append(mark, 0)) || bytes.Contains(env, append(append([]byte{0}, mark...), 0))
}

// sweepEvery is the interval of looks at a tree that ends.
const sweepEvery = 20 * time.Millisecond

// End ends the whole tree: it sends TERM to each process, and after grace KILL to the remaining ones, until none is
// left or ctx is done. It returns how many it found at first, and how many are left.
func (t Tree) End(ctx context.Context, grace time.Duration) (found, left int) {
	members := t.Members()
	found = len(members)
	for _, m := range members {
		m.signal(syscall.SIGTERM)
	}
	deadline := time.Now().Add(grace)
	for len(members) > 0 && ctx.Err() == nil {
		if time.Now().After(deadline) {
			t.Group.kill() // all at once, so that none can start another
			for _, m := range members {
				m.signal(syscall.SIGKILL)
			}
		}
		pause.For(ctx, sweepEvery)
		members = t.Members()
	}
	return found, len(members)
}

// pollEvery is the interval of looks at a process for which the kernel gives no pidfd.
const pollEvery = 50 * time.Millisecond

// await returns a func that waits for the end of the process with that pid and start; fs.ErrNotExist if it has ended.
// Without pidfd_open (before Linux 5.3, or behind a seccomp filter) the func polls.
func await(pid int, ticks uint64) (wait func(), err error) {
	fd, openErr := unix.PidfdOpen(pid, 0)
	if !lives(pid, ticks) {
		if openErr == nil {
			err = unix.Close(fd)
		}
		return nil, errors.Join(fs.ErrNotExist, err)
	}
	if openErr != nil {
		return func() {
			for lives(pid, ticks) {
				time.Sleep(pollEvery) // between two looks
			}
		}, nil
	}
	return func() {
		for { // a pidfd is readable when its process has ended
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		_ = unix.Close(fd) // it was only waited on
	}, nil
}

// lives reports whether the process with that pid and start has not ended.
func lives(pid int, ticks uint64) bool {
	st, err := procfs.Read(pid)
	return err == nil && st.Started == ticks && st.Alive()
}

// signal sends sig to the process, and to no other one with its pid. Without a pidfd the pid may be reused between the
// look and the signal, which takes as many new processes as there are pids.
func (m Member) signal(sig syscall.Signal) {
	fd, err := unix.PidfdOpen(m.PID, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return // gone
	case err != nil:
		if lives(m.PID, m.Ticks) {
			_ = syscall.Kill(m.PID, sig) // it may have ended
		}
		return
	}
	if lives(m.PID, m.Ticks) {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
			_ = syscall.Kill(m.PID, sig) // it may have ended
		}
	}
	_ = unix.Close(fd) // only used to signal
}
