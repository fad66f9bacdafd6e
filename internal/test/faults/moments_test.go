package faults_test

import (
	"slices"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
)

// moment is a point in a run's life at which it can be held.
type moment int

const (
	beforeAgent moment = iota
	beforeLine
	midStream
	midTool
	beforeExit
	lastSync
	midTerminal
	after
	moments
)

var momentNames = [moments]string{
	"before the agent", "before the first line", "mid-stream", "mid-tool", "last line written", "during the last sync",
	"between the terminal's two entries", "terminal sent, not acknowledged",
}

// where a fault makes no sense, and all moments from one on or up to one.
func from(m moment) func(moment) bool { return func(at moment) bool { return at >= m } }

func at(list ...moment) func(moment) bool {
	return func(at moment) bool { return slices.Contains(list, at) }
}

// agentLives are the moments at which there is an agent.
func agentLives(m moment) bool { return m >= beforeLine && m <= beforeExit }

// fault is something that goes wrong.
type fault struct {
	name string
	on   func(moment) bool        // at which moments it can; nil for all
	prep func(*scene)             // before the run starts
	hit  func(*scene, moment)     // at the moment
	mend func(*scene)             // when the run continues
	then func(*scene)             // when it is through
	want func(moment) string      // the verdict; nil: as if nothing had happened
	left int                      // processes of the agent's that stay
	exit func(moment, string) int // what the runner ends with; nil: by the verdict
	real bool                     // the thread is arbe serve's
	gone bool                     // the runner is dead: arbe-pi-runner recover finishes
	torn bool                     // the session file is not what the agent wrote: its lines are looked for one by one
	keep bool                     // the agent is held on
	slow time.Duration            // what the fault itself takes
}

// undisturbed is the verdict of a run that nothing happens to.
func undisturbed(m moment) string {
	if m == midTerminal {
		return "failed: provider_error" // of two entries
	}
	return "completed"
}

func signalKeeper(sig syscall.Signal) func(*scene, moment) {
	return func(s *scene, _ moment) { kill(s.keeper(), sig) }
}

// cancelled returns the verdict of a run whose runner got TERM.
func cancelled(m moment) string {
	if m < beforeExit {
		return "cancelled"
	}
	return undisturbed(m)
}

func answers(n, status int, header ...string) func(*scene, moment) {
	f := fakethread.Fault{Status: status, Header: map[string]string{}}
	for i := 0; i+1 < len(header); i += 2 {
		f.Header[header[i]] = header[i+1]
	}
	return func(s *scene, _ moment) { s.failCalls(n, f) }
}

// refusedAtStart is for a server that refuses the token: at the start that is an answer.
func refusedAtStart(m moment) string {
	if m == beforeAgent {
		return ""
	}
	return undisturbed(m)
}

func refusedExit(m moment, verdict string) int {
	if m == beforeAgent {
		return 78
	}
	return exitOf(m, verdict)
}

// exitOf is the runner's exit status for a verdict: the fake agent's own where it failed on its own.
func exitOf(_ moment, verdict string) int {
	switch verdict {
	case "completed":
		return 0
	case "failed: killed":
		return 137
	case "cancelled":
		return 143
	}
	return 1
}
