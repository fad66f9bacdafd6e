package faults_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

// TestFullSoak plays random faults at random times on random runs. ARBE_SOAK is their number. A run that fails the test
// prints its seed, and ARBE_SOAK_SEED plays that schedule again.
func TestFullSoak(t *testing.T) {
	t.Parallel()
	if text := os.Getenv("ARBE_SOAK_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		soak(t, seed)
		return
	}
	n, err := strconv.Atoi(os.Getenv("ARBE_SOAK"))
	if err != nil {
		n = 25
	}
	base := uint64(time.Now().UnixNano())
	var mu sync.Mutex
	came := map[string]int{}
	var slowest time.Duration
	t.Run("runs", func(t *testing.T) {
		for i := range n {
			t.Run(strconv.FormatUint(base+uint64(i), 10), func(t *testing.T) {
				t.Parallel()
				word, took := soak(t, base+uint64(i))
				mu.Lock()
				defer mu.Unlock()
				came[word]++
				slowest = max(slowest, took)
			})
		}
	})
	t.Logf(
		"%d runs: %v; the slowest terminal came %v after the last fault and the agent's end",
		n,
		came,
		slowest.Round(time.Millisecond),
	)
}

// step is one fault of a schedule.
type step struct {
	after time.Duration // since the one before
	what  string
}

// faultsOfChance are the faults of schedules, with their relative frequencies.
var faultsOfChance = []struct {
	what   string
	weight int
}{
	{"worker KILL", 6},
	{"worker crash", 2},
	{"keeper KILL", 1},
	{"all KILL", 1},
	{"agent KILL", 2},
	{"TERM", 2},
	{"500", 3},
	{"503 applied", 3},
	{"reset", 3},
	{"reset applied", 3},
	{"401", 2},
	{"slow", 2},
	{"frozen", 2},
	{"down", 2},
	{"worker STOP", 1},
	{"all STOP", 2},
	{"process limit", 3},
	{"redirect", 2},
	{"login page", 3},
	{"reads fail", 2},
	{"token rotated", 3},
	{"token rotated, renewal hangs", 2},
	{"slow answers", 2},
	{"413 without a list", 3},
}

// soak plays the schedule of a seed, which decides what the agent does, what fails and when. How the two meet depends
// on the machine.
func soak(t *testing.T, seed uint64) (word string, took time.Duration) {
	r := rand.New(rand.NewPCG(seed, 0))
	s := newScene(t, fmt.Sprintf("s%d", seed))
	if r.IntN(4) == 0 {
		s.server.Old()
	}
	s.env["ARBE_HEARTBEAT"] = "400ms" // shorter than slow answers are
	natural, lines := s.plans(r)
	s.boxOfChance(r)
	if r.IntN(2) == 0 { // how a rotated token comes to the runner
		renewable(s)
	} else {
		tokenInFile(s)
	}
	if r.IntN(4) == 0 {
		promptOnThread(0, fakethread.Fault{})(s)
	}
	var steps []step
	for range 1 + r.IntN(4) {
		total := 0
		for _, f := range faultsOfChance {
			total += f.weight
		}
		pick := r.IntN(total)
		i := slices.IndexFunc(faultsOfChance, func(f struct {
			what   string
			weight int
		},
		) bool {
			pick -= f.weight
			return pick < 0
		})
		steps = append(steps, step{time.Duration(r.IntN(120)) * time.Millisecond, faultsOfChance[i].what})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf(
				"play it again: make soak SEED=%d\nthe agent: %s\nthe faults: %v\nthe runner's log:\n%s",
				seed,
				strings.Join(s.plan, "; "),
				steps,
				s.stderr.String(),
			)
		}
	})

	s.start()
	// the agent; the runner, to stop; the runner altogether; the token
	killed, told, lost, refused := false, false, false, false
	for _, st := range steps {
		select {
		case <-s.ended:
		case <-time.After(st.after): // this is the schedule
		}
		switch st.what {
		case "agent KILL":
			killed = true
		case "TERM":
			told = true
		case "keeper KILL", "all KILL":
			lost = true
		case "401", "redirect", "token rotated, renewal hangs":
			refused = true
		}
		s.strike(st.what)
	}
	if lost { // a worker that is stopped when its keeper is gone is for a person to continue
		for _, pid := range processes("work " + s.run) {
			kill(pid, syscall.SIGCONT)
		}
	}
	s.struck = time.Now()
	s.finish()
	// Recover finishes what no process was left to finish.
	s.failCalls(0, fakethread.Fault{})
	s.recover()
	word, at := s.verdict()
	switch {
	case word == natural:
	case killed && word == "failed: killed":
	case told && word == "cancelled":
	case (lost || told || refused) && word == "":
		if len(s.entries()) > 0 && s.begun() {
			t.Error("the run has no end")
		}
		return "never begun", 0
	case refused && word == "failed: spawn": // at the start that is an answer
	case lost && (word == "orphaned: runner_lost" || word == "failed: spawn" || word == "cancelled"):
	default:
		t.Errorf("the run is %q; undisturbed it is %q", word, natural)
	}
	s.complete()
	if n := len(s.lines()); word == natural && !killed && !told && !lost && n != lines+1 {
		t.Errorf("%d lines, want %d and a header", n, lines)
	}
	s.totals(word)
	begin := s.struck
	if e, ok := s.fact("exited"); ok && e.At.After(begin) {
		begin = e.At
	}
	return word, max(0, at.Sub(begin))
}

// begun reports whether the runner has begun the run. Before, there may be what the host has posted.
func (s *scene) begun() bool {
	if s.prompted && !exists(filepath.Join(s.folder(), "run.json")) {
		return false
	}
	return slices.ContainsFunc(s.entries(), func(e thread.Entry) bool { return e.ID == s.run+".running" })
}

// totals checks the terminal's totals of the run's lines.
func (s *scene) totals(word string) {
	s.t.Helper()
	for _, e := range s.entries() {
		var p thread.StatusChanged
		if !strings.HasPrefix(e.ID, s.run+".end.") || json.Unmarshal(e.Payload, &p) != nil || p.Totals == nil ||
			p.Type != thread.TypeStatus {
			continue
		}
		if int(p.Totals.Lines) != len(s.lines()) {
			s.t.Errorf("the terminal (%s) speaks of %d lines, the thread has %d", word, p.Totals.Lines, len(s.lines()))
		}
		if want := s.digest(); p.Totals.Digest != want {
			s.t.Errorf("the terminal's digest is %s, that of the thread's lines %s", p.Totals.Digest, want)
		}
	}
}

// plans writes the agent's plan, and returns the verdict that it has without faults and its number of lines.
func (s *scene) plans(r *rand.Rand) (natural string, lines int) {
	s.plan = []string{"prompt"}
	lines = 1
	for range r.IntN(12) {
		s.plan = append(s.plan, "call bash", fmt.Sprintf("big %d", 16+r.IntN(1<<(4+r.IntN(14)))))
		lines += 2
		if r.IntN(3) == 0 {
			s.plan = append(s.plan, fmt.Sprintf("sleep %dms", r.IntN(60)))
		}
	}
	switch r.IntN(5) {
	case 0:
		s.plan, natural = append(s.plan, "fail 500 no", "exit 1"), "failed: provider_error"
	case 1:
		s.plan, natural = append(s.plan, "call bash", "exit 3"), "failed: pi_exit"
	case 2:
		s.plan, natural = append(s.plan, "abort"), "cancelled"
	default:
		s.plan, natural = append(s.plan, "say done", fmt.Sprintf("sleep %dms", r.IntN(40))), "completed"
	}
	return natural, lines + 1
}

// strike lets something go wrong now. What is no more there can't be struck.
func (s *scene) strike(what string) {
	worker := func(sig syscall.Signal) {
		for _, pid := range processes("work " + s.run) {
			kill(pid, sig)
		}
	}
	keeper := func(sig syscall.Signal) {
		select {
		case <-s.ended: // its pid may be another's
		default:
			kill(s.keeper(), sig)
		}
	}
	switch what {
	case "worker KILL":
		worker(syscall.SIGKILL)
	case "worker crash":
		worker(syscall.SIGQUIT)
	case "keeper KILL":
		keeper(syscall.SIGKILL)
	case "all KILL":
		keeper(syscall.SIGKILL)
		worker(syscall.SIGKILL)
	case "agent KILL":
		if f, ok := s.fact("spawned"); ok && slices.Contains(s.leftovers(), f.PID) {
			kill(f.PID, syscall.SIGKILL)
		}
	case "TERM":
		keeper(syscall.SIGTERM)
	case "worker STOP":
		worker(syscall.SIGSTOP)
	case "all STOP":
		keeper(syscall.SIGSTOP)
		worker(syscall.SIGSTOP)
		time.Sleep(150 * time.Millisecond) // this is the fault
		keeper(syscall.SIGCONT)
		worker(syscall.SIGCONT)
	case "process limit":
		s.strikeProcesses()
	case "500":
		s.failCalls(2, fakethread.Fault{Status: 500})
	case "503 applied":
		s.failCalls(2, fakethread.Fault{Status: 503, Applied: true})
	case "reset":
		s.failCalls(2, fakethread.Fault{Drop: true})
	case "reset applied":
		s.failCalls(2, fakethread.Fault{Drop: true, Applied: true})
	case "401":
		s.failCalls(2, fakethread.Fault{Status: 401})
	case "redirect":
		s.failCalls(3, elsewhere)
	case "login page":
		s.failCalls(4, page)
		s.failReads(2, page)
	case "reads fail":
		s.failReads(3, fakethread.Fault{Status: 503})
	case "token rotated":
		s.rotate(fmt.Sprintf("rotated-token-%d", time.Now().UnixNano()))
	case "token rotated, renewal hangs":
		s.hangRenewals(1, 500*time.Millisecond)
		s.rotate(fmt.Sprintf("rotated-token-%d", time.Now().UnixNano()))
	case "slow answers":
		s.slowAnswers(3, 500*time.Millisecond)
	case "413 without a list":
		s.refuseTogether(3)
	case "slow":
		n := 0
		s.failWith(func(fakethread.Call) fakethread.Fault {
			if n++; n <= 2 {
				time.Sleep(100 * time.Millisecond) // this is the fault
			}
			return fakethread.Fault{}
		})
	case "frozen":
		s.front.freeze()
		time.Sleep(150 * time.Millisecond) // this is the fault
		s.front.thaw()
	case "down":
		s.front.down()
		time.Sleep(100 * time.Millisecond) // this is the fault
		s.front.up(s.t)
	}
}
