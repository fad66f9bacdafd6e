package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
)

// MarkVar is the variable that marks all processes of one run: children inherit it, whatever group and session they move to.
const MarkVar = "AGENT_RUN_INSTANCE"

// Tree is all that came of an agent: the agent, its tools, and what those have left. All three agents start their tools in groups and sessions of their
// own, so neither names the tree. It is found by three traces, each of which something can wipe: descent from the agent or from the process that
// inherits its orphans, the mark in the environment, and the cgroup.
type Tree struct {
	Roots  []int  // the agent, and the keeper, which is the reaper of its orphans
	Except []int  // of the roots' descendants, those that are the runner's own
	Mark   string // the value of MarkVar
	Group  *Group // nil where there is none
}

// Member is one process of a Tree.
type Member struct {
	PID   int
	Ticks uint64 // with the pid it names the process for good
	CPU   time.Duration
}

// Members are the tree's processes that live now, zombies not counted. The roots count, but for those that are excepted.
func (t Tree) Members() []Member {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // no /proc, nothing to be found
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
	found := map[int]bool{}
	add := func(pid int) {
		for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
			if p := queue[0]; !found[p] && !slices.Contains(t.Except, p) {
				found[p] = true
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
	for pid := range found {
		if st, ok := stats[pid]; ok && st.Alive() {
			members = append(members, Member{pid, st.Started, st.CPU})
		}
	}
	return members
}

// marked reports whether a process has the tree's mark. Of another user's process it can't be known.
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

// sweepEvery is the time between two looks at a tree that is to end.
const sweepEvery = 20 * time.Millisecond

// End ends the whole tree: TERM to each, and to those that are left after grace KILL, again and again until none is left or ctx is done. It returns
// how many it found at first, and how many are left.
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
		timer := time.NewTimer(sweepEvery)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		members = t.Members()
	}
	return found, len(members)
}
