package faults_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"
)

// boxOfChance gives the run a box that is not as good as it might be: a stderr that nobody reads, a limit on
// processes that can be reached, a clock that jumps between the agent's lines.
func (s *scene) boxOfChance(r *rand.Rand) {
	held, limited, jumps := r.IntN(6) == 0, r.IntN(3) == 0, r.IntN(3) == 0
	if held {
		s.mute()
	}
	if limited {
		dir, err := s.cgroup("pids")
		if err != nil {
			notHere.Do(func() { fmt.Fprintf(os.Stderr, "NOT RUN: process limits in the soak: %v\n", err) })
		} else {
			s.group = dir
			s.wrap = "echo $$ > " + dir + "/cgroup.procs"
		}
	}
	if jumps {
		hours := r.IntN(48) - 24
		s.plan = slices.Insert(s.plan, 1+r.IntN(len(s.plan)-1), fmt.Sprintf("skew %dh", hours))
	}
}

// notHere prints once what the soak can't do here.
var notHere sync.Once

// strikeProcesses fills the limit on processes for a moment, once there is an agent, which may need some itself.
func (s *scene) strikeProcesses() {
	if _, spawned := s.fact("spawned"); s.group == "" || !spawned {
		return
	}
	s.fillProcesses(midStream, 0)
	time.Sleep(150 * time.Millisecond) // this is the fault
	s.freeProcesses()
}
