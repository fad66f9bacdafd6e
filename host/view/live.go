package view

import (
	"encoding/json"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// LiveState is the state of a thread's latest run.
type LiveState string

// The states of a run.
const (
	Idle    LiveState = "idle"    // the thread has no run
	Working LiveState = "working" // entries come as they should
	Waiting LiveState = "waiting" // the agent has ended its turn and waits for a chat
	Silent  LiveState = "silent"  // a heartbeat is missing
	Dead    LiveState = "dead"    // three heartbeats are missing: the runner is gone, or can't reach the server
	Ended   LiveState = "ended"   // the run has its verdict
)

// waitingBeat is the interval of heartbeats of a live run that waits. The last one before it waits has a shorter one.
const waitingBeat = time.Minute

// unknownBeat is the interval of a run's signals before its first heartbeat: the host posts one every 30 s while it
// makes a box.
const unknownBeat = 30 * time.Second

// Pulse has the signs of life of a thread's latest run.
type Pulse struct {
	Status  string        // of the run: a Status constant of package thread; idle where there is none
	Waiting bool          // the agent waits for a chat
	Last    time.Time     // when the server received the run's newest entry; zero where that is not known
	Next    time.Duration // after which the next entry is due, as the last heartbeat has it; 0 before the first one
}

// PulseOf returns the pulse of a thread in a list.
func PulseOf(s thread.Summary) Pulse {
	p := Pulse{
		Status:  s.Status,
		Waiting: s.Waiting,
		Next:    time.Duration(min(max(s.NextMs, 0), 1e9)) * time.Millisecond,
	}
	p.Last, _ = time.Parse(time.RFC3339, s.LastEntryAt) // zero where there is none
	return p
}

// Live is the state of a run at a time.
type Live struct {
	State   LiveState
	Status  string        // of the run, as in Pulse: what it ended with where the State is Ended
	Silence time.Duration // since the run's newest entry; 0 for Idle and Ended
	DeadIn  time.Duration // of a Silent run: until it is Dead
}

// At returns the state at a time of the server's clock.
func (p Pulse) At(now time.Time) Live {
	l := Live{State: Ended, Status: p.Status}
	switch p.Status {
	case thread.StatusRunning:
	case thread.StatusIdle, "":
		l.State = Idle
		return l
	default:
		return l
	}
	if !p.Last.IsZero() {
		l.Silence = max(0, now.Sub(p.Last))
	}
	silent, dead := p.limits()
	switch {
	case l.Silence >= dead:
		l.State = Dead
	case l.Silence >= silent:
		l.State, l.DeadIn = Silent, dead-l.Silence
	case p.Waiting:
		l.State = Waiting
	default:
		l.State = Working
	}
	return l
}

// limits returns how long after its newest entry an open run is silent, and dead.
func (p Pulse) limits() (silent, dead time.Duration) {
	next := p.Next
	if next <= 0 {
		next = unknownBeat
	}
	if p.Waiting {
		next = max(next, waitingBeat)
	}
	return next + next/2, 3 * next // an entry needs time to get here
}

// Limits returns when an open run is silent, and dead, unless another entry comes; zero times for another run.
func (p Pulse) Limits() (silent, dead time.Time) {
	if p.Status != thread.StatusRunning || p.Last.IsZero() {
		return time.Time{}, time.Time{}
	}
	s, d := p.limits()
	return p.Last.Add(s), p.Last.Add(d)
}

// Watch follows the life of a thread's runs. Add every entry in the thread's order; it may begin anywhere. The zero
// value is ready.
type Watch struct {
	fold    thread.Fold
	run     string // the latest
	waiting bool
	next    time.Duration
	beat    thread.Heartbeat
	step    string
}

// Add adds the thread's next entry.
func (w *Watch) Add(e thread.Entry) {
	sig, err := thread.Scan(e.Payload)
	if err != nil {
		return
	}
	w.fold.AddScanned(sig, e)
	run, ok := w.fold.Latest()
	if !ok {
		return
	}
	if run.ID != w.run {
		w.run, w.waiting, w.next, w.beat, w.step = run.ID, false, 0, thread.Heartbeat{}, ""
	}
	if !sig.Signal() {
		p, _ := thread.ParseMirrored(e.Payload)
		w.waiting = w.waiting && !p.OpensTurn()
		return
	}
	if sig.RunID != run.ID {
		return
	}
	switch {
	case sig.Type == thread.TypeWaiting:
		var p thread.Waiting
		w.waiting = json.Unmarshal(e.Payload, &p) == nil && p.Pending == 0 // else the next turn begins at once
	case sig.Type == thread.TypeHeartbeat:
		var p thread.Heartbeat
		if json.Unmarshal(e.Payload, &p) == nil {
			w.beat, w.next = p, time.Duration(min(max(p.NextMs, 0), 1e9))*time.Millisecond
		}
	case thread.IsSetup(sig.Type):
		var p thread.SetupStep
		_ = json.Unmarshal(e.Payload, &p) // a step without a name
		w.step = p.Name
	case sig.Type == thread.TypeStarted:
		w.step = ""
	}
}

// Run returns the thread's latest run; false before any.
func (w *Watch) Run() (thread.Run, bool) { return w.fold.Latest() }

// Beat returns the last heartbeat of the latest run; the zero value before the first one.
func (w *Watch) Beat() thread.Heartbeat { return w.beat }

// Step returns the step of making the box that the host reported last; "" once the runner has started.
func (w *Watch) Step() string { return w.step }

// Pulse returns the signs of life of the latest run.
func (w *Watch) Pulse() Pulse {
	run, _ := w.fold.Latest()
	return Pulse{Status: w.fold.Status(), Waiting: w.waiting, Last: run.LastEntry, Next: w.next}
}

// Part selects the entries of one run. A mirrored line, and a chat from elsewhere, has no run's id: it is of the run
// that began last before it.
type Part struct {
	Run string // its id

	in   bool
	seen map[string]bool // runs that have begun
}

// Has reports whether the thread's next entry is one of the run.
func (p *Part) Has(e thread.Entry) bool {
	f, err := thread.Scan(e.Payload)
	if err != nil || f.RunID == "" {
		return p.in
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	if !p.seen[f.RunID] {
		p.seen[f.RunID] = true
		p.in = f.RunID == p.Run
	}
	return f.RunID == p.Run
}
