package faults_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread"
)

func (s *scene) sessionID() string {
	var rec struct{ SessionID string }
	s.until("a record", func() bool {
		b, err := os.ReadFile(filepath.Join(s.folder(), "run.json"))
		return err == nil && json.Unmarshal(b, &rec) == nil
	})
	return rec.SessionID
}

// terminal reports whether an entry is of the run's end.
func (s *scene) terminal(e thread.Entry) bool { return strings.HasPrefix(e.ID, s.run+".end.") }

// mirrored waits until what the agent has written by a moment is on the thread: what is then taken away is not lost.
func (s *scene) mirrored(m moment) {
	lines := map[moment]int{beforeLine: 1, midStream: 2, midTool: 3, beforeExit: 5}[m]
	s.until("the lines", func() bool { return len(s.lines()) >= lines })
}

// endTool ends the agent's tool.
func (s *scene) endTool(sig syscall.Signal) {
	b, err := os.ReadFile(s.path("tool"))
	s.try(err)
	var pid int
	_, err = fmt.Sscan(string(b), &pid)
	s.try(err)
	kill(pid, sig)
}

// script makes the agent's plan, with a halt at the moment.
func (s *scene) script(m moment) {
	halt := func(at moment) []string {
		if at != m {
			return nil
		}
		return []string{"touch " + s.path("here"), "wait " + s.path("on")}
	}
	tool, last := "result fine", []string{"say done"}
	if m == midTool {
		tool = "tool " + s.path("tool")
	}
	if m == midTerminal {
		last = []string{"fail 400 no"}
	}
	end := "exit 0"
	if m == midTerminal {
		end = "exit 1"
	}
	s.plan = slices.Concat(
		halt(beforeLine),
		[]string{"prompt"},
		halt(midStream),
		[]string{"call bash", tool},
		last,
		halt(beforeExit),
		[]string{end},
	)
}

// arm prepares the halt at the moment where it is the server that holds the run.
func (s *scene) arm(m moment) {
	if s.real != nil {
		switch m {
		case beforeAgent:
			s.front.hold(s.run+".started", s.held, s.freed)
		case lastSync:
			s.front.hold(`"stopReason":"stop"`, s.held, s.freed)
		case after:
			s.front.hold(s.run+".end.0", s.held, s.freed)
		}
		return
	}
	switch m {
	case beforeAgent:
		s.holdCalls(func(e thread.Entry) bool { return e.ID == s.run+".started" })
	case lastSync:
		s.holdCalls(func(e thread.Entry) bool {
			var p thread.Line
			return json.Unmarshal(e.Payload, &p) == nil && p.Type == "pi.assistant" && p.StopReason == "stop"
		})
	case midTerminal:
		s.server.Old()
		s.holdCalls(func(e thread.Entry) bool { return e.ID == s.run+".end.1" })
	case after:
		var once sync.Once
		s.holdCalls(func(e thread.Entry) bool {
			first := false
			if s.terminal(e) {
				once.Do(func() { first = true })
			}
			return s.terminal(e) && !first
		})
		s.failWith(func(c fakethread.Call) fakethread.Fault {
			if slices.ContainsFunc(c.Entries, s.terminal) {
				return fakethread.Fault{Applied: true, Drop: true} // until the fault sets another
			}
			return fakethread.Fault{}
		})
	}
}

// reach waits until the run is at the moment.
func (s *scene) reach(m moment) {
	switch m {
	case midTool:
		s.until("the tool", func() bool { return exists(s.path("tool")) })
	case beforeLine, midStream, beforeExit:
		s.until("the agent's halt", func() bool { return exists(s.path("here")) })
	default:
		s.awaitHeld()
		if m == lastSync {
			s.until("the agent's end", func() bool { _, ok := s.fact("exited"); return ok })
		}
	}
}

func (s *scene) awaitHeld() {
	select {
	case <-s.held:
	case <-time.After(patience):
		s.t.Fatal("no call came to be held")
	}
}

// release lets the run continue.
func (s *scene) release(m moment) {
	s.loose.Do(func() {
		switch m {
		case midTool:
			s.endTool(syscall.SIGTERM)
		case beforeLine, midStream, beforeExit:
			s.write("on", "")
		default:
			close(s.freed)
		}
	})
}

// cell is the result of one fault at one moment.
type cell struct {
	verdict string
	took    time.Duration // from the agent's end, or the fault's where that is later, to the terminal on the thread
	left    int
}

func (c cell) String() string {
	text := c.verdict
	if text == "" {
		return "refused: 78"
	}
	text += fmt.Sprintf(" · %.2f s", c.took.Seconds())
	if c.left > 0 {
		text += fmt.Sprintf(" · %d left", c.left)
	}
	return text
}

// play injects a fault at a moment and checks the result.
func play(t *testing.T, machine *control, f fault, m moment, id string) cell {
	began := time.Now()
	s := newScene(t, id)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the runner's log:\n%s", s.stderr.String())
		}
	})
	s.script(m)
	if f.prep != nil {
		f.prep(s)
	}
	if f.keep && m == beforeAgent {
		// Where the fault is slower than the agent's start, there is an agent. It must not be through before the
		// fault is there.
		s.plan = append([]string{"wait " + s.path("never")}, s.plan...)
	}
	if f.real {
		s.real = newService(t)
		s.real.start(t)
		s.front.lead(s.real.addr)
	}
	s.arm(m)
	s.start()
	s.reach(m)
	if m == after {
		s.failCalls(0, fakethread.Fault{})
	}
	f.hit(s, m)
	if !f.keep || !agentLives(m) {
		s.release(m)
	}
	if f.mend != nil {
		f.mend(s)
	}
	s.struck = time.Now()
	status := s.finish()
	if f.gone {
		s.struck = time.Now()
		s.recover()
		if out := s.recover(); !strings.HasPrefix(out, "no run of thread t1 is lost") {
			t.Errorf("a second recover: %s", out)
		}
	}

	want := undisturbed(m)
	if f.want != nil {
		want = f.want(m)
	}
	verdict, at := s.verdict()
	if verdict != want {
		t.Errorf("the run is %q, want %q", verdict, want)
	}
	exit := exitOf
	if f.exit != nil {
		exit = f.exit
	}
	wantStatus := exit(m, verdict)
	if _, spawned := s.fact("spawned"); !spawned && wantStatus == 143 {
		wantStatus = 1 // there was no agent yet that could have a status
	}
	if status != wantStatus {
		t.Errorf("the runner ended with %d, want %d", status, wantStatus)
	}
	c := cell{verdict: verdict}
	for _, pid := range s.leftovers() {
		c.left++
		kill(pid, syscall.SIGKILL)
	}
	if c.left != f.left {
		t.Errorf("%d processes are left, want %d", c.left, f.left)
	}
	if f.then != nil {
		f.then(s)
	}
	if verdict == "" {
		return c
	}
	if !f.torn {
		s.complete()
	} else {
		s.wrote(m, verdict)
	}
	begin := s.struck
	if e, ok := s.fact("exited"); ok && e.At.After(begin) {
		begin = e.At
	}
	c.took = max(0, at.Sub(begin))
	if slowness := machine.slowness(began); c.took.Seconds() > slowness*(2*time.Second+f.slow).Seconds() {
		t.Errorf("the terminal took %v, on a machine that was %.1f times as slow as at its best", c.took, slowness)
	}
	return c
}

// wrote checks what can be known where the session file is not what the agent wrote: the lines that it wrote are there.
func (s *scene) wrote(m moment, verdict string) {
	s.t.Helper()
	if verdict != "completed" {
		return // it could not write all of them
	}
	all := string(slices.Concat(s.lines()...))
	for _, id := range []string{"m1", "m3", "m4"} {
		if strings.Count(all, `"id":"`+id+`"`) != 1 {
			s.t.Errorf("line %s is not there once", id)
		}
	}
}

// Each fault is played at one of its moments.
func TestFaults(t *testing.T) {
	playAll(t, func(row int, can []moment) []moment { return can[row%len(can):][:1] })
}

// Each fault is played at each of its moments. With ARBE_FAULTS naming a file the table of the results is written
// there.
func TestFullFaults(t *testing.T) {
	cells := playAll(t, func(_ int, can []moment) []moment { return can })
	if path := os.Getenv("ARBE_FAULTS"); path != "" && !t.Failed() {
		if err := os.WriteFile(path, []byte(report(cells)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// playAll plays all faults, each at those of its moments that some returns, and returns the results by fault and
// moment.
func playAll(t *testing.T, some func(row int, can []moment) []moment) map[[2]int]cell {
	t.Parallel()
	var mu sync.Mutex
	cells := map[[2]int]cell{}
	machine := newControl(t)
	t.Run("table", func(t *testing.T) {
		for i, f := range allFaults() {
			var can []moment
			for m := range moments {
				if f.on == nil || f.on(m) {
					can = append(can, m)
				}
			}
			for _, m := range some(i, can) {
				t.Run(strings.ReplaceAll(f.name+" "+momentNames[m], " ", "_"), func(t *testing.T) {
					t.Parallel()
					c := play(t, machine, f, m, fmt.Sprintf("f%dm%d-%d", i, m, os.Getpid()))
					mu.Lock()
					defer mu.Unlock()
					cells[[2]int{i, int(m)}] = c
				})
			}
		}
	})
	return cells
}

// A worker that dies again and again is given up in the end: the agent is ended, and the run waits for recover.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	s := newScene(t, fmt.Sprintf("givenup-%d", os.Getpid()))
	s.script(midStream)
	s.start()
	s.reach(midStream)
	agent := s.agent()
	killed := 0
	s.until("the keeper's end", func() bool {
		for _, pid := range processes("work " + s.run) {
			kill(pid, syscall.SIGKILL)
			killed++
			s.until("its end", func() bool { return !slices.Contains(processes("work "+s.run), pid) })
		}
		select {
		case <-s.ended:
			return true
		default:
			return false
		}
	})
	log := func() string { return s.stderr.String() }
	if status := s.finish(); status != 75 || killed < 11 || !strings.Contains(log(), "restarts=11") ||
		strings.Contains(log(), "restarts=12") {
		t.Errorf("the runner ended with %d after %d workers:\n%s", status, killed, log())
	}
	if slices.Contains(s.leftovers(), agent) {
		t.Error("the agent lives on, and nobody watches it")
	}
	s.recover()
	if word, _ := s.verdict(); word != "orphaned: runner_lost" {
		t.Errorf("the run is %s", word)
	}
	s.complete()
}
