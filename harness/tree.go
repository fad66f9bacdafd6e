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
