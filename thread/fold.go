package thread

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// Run is one run of a thread, folded from its entries. Its JSON is a part of Fold's.
type Run struct {
	ID      string `json:"id,omitempty"`
	Harness string `json:"harness,omitempty"`
	Status  string `json:"status"` // StatusRunning until a finished-signal came
	// Provisional reports that the status is the host's, about a run that fell silent. A later one of the runner
	// replaces it.
	Provisional bool         `json:"provisional,omitempty"`
	Orphaned    *Orphaned    `json:"orphaned,omitempty"` // why its end is not known; nil where it is
	Cause       *Failed      `json:"cause,omitempty"`    // why it failed
	Totals      *Totals      `json:"totals,omitempty"`
	Sandbox     *Sandbox     `json:"sandbox,omitempty"`   // its box, as its host has named it; nil where none has
	Ephemeral   bool         `json:"ephemeral,omitempty"` // the box was made for this run alone
	Parent      *Parent      `json:"parent,omitempty"`    // of a delegated run
	Started     *Started     `json:"started,omitempty"`
	Waiting     bool         `json:"waiting,omitempty"` // a live run's agent has ended its turn and waits for a chat
	After       *After       `json:"after,omitempty"`   // what its launch wants done once it has ended
	Push        *Pushed      `json:"push,omitempty"`    // the newest result of pushing its work
	Sync        *Synced      `json:"sync,omitempty"`    // the newest result of copying its work back
	Kept        *SandboxKept `json:"kept,omitempty"`
	Pushes      int          `json:"pushes,omitempty"` // results of pushing so far: the number of the next one
	Syncs       int          `json:"syncs,omitempty"`  // results of copying back so far
	Setups      int          `json:"setups,omitempty"` // steps of making its box so far

	// Times are of the server's clock (at), or of the writer's (ts) where the server has none.
	FirstSignal time.Time `json:"firstSignal,omitzero"`
	LastSignal  time.Time `json:"lastSignal,omitzero"`
	LastEntry   time.Time `json:"lastEntry,omitzero"` // like LastSignal, mirrored lines included
	Ended       time.Time `json:"ended,omitzero"`     // of the entry that gave it its status; zero while it runs
}

// Box returns the run's box: as its host has named it, or else as its runner has; nil where neither has. What is shown
// of a run, and what is asked about it, may rest on it. What is opened, written to or deleted rests on Sandbox, since a
// runner may name the box of another thread.
func (r Run) Box() *Sandbox {
	if r.Sandbox == nil && r.Started != nil {
		return r.Started.Sandbox
	}
	return r.Sandbox
}

// Fold folds a thread's entries into its runs. Add every entry in the thread's order. The zero value is an empty
// thread. Its JSON is its whole state: a Fold that is read from it continues with the thread's next entry.
type Fold struct {
	runs  map[string]*Run
	list  []*Run     // in the order of their first signals
	execs []OpenExec // in the order of their start
	exec  time.Time  // of the newest entry of a command
}

// Add adds the thread's next entry.
func (f *Fold) Add(e Entry) {
	if sig, err := Scan(e.Payload); err == nil { // the current server refuses others
		f.AddScanned(sig, e)
	}
}

// AddScanned is Add for a caller that has scanned the entry's payload.
func (f *Fold) AddScanned(sig Fields, e Entry) {
	at := e.Received()
	if at.IsZero() {
		at = e.Time()
	}
	if !sig.Signal() {
		f.AddLine(sig, at)
		return
	}
	switch sig.Type {
	case TypeSandbox, TypeStarted:
		if !believed(sig, e.ID) {
			return
		}
	case TypeHeartbeat, TypeStatus, TypeFailed, TypeOrphaned:
	case TypeWaiting, TypeRefused, TypeAsked:
		if r := f.runs[sig.RunID]; r != nil { // it begins no run
			r.LastSignal, r.LastEntry = at, at
			r.Waiting = r.Status == StatusRunning && (r.Waiting || sig.Type == TypeWaiting)
		}
		return
	case TypePush, TypeSync, TypeSandboxKept:
		if believed(sig, e.ID) {
			f.after(sig, e)
		}
		return
	case TypeExecStarted, TypeExecRunning, TypeExecOutput, TypeExecFinished:
		f.command(sig.Type, e, at)
		return
	default:
		if !IsSetup(sig.Type) {
			return // asks something of a run or reports on another thread's: no sign of life
		}
		if sig.RunID == "" && f.execSetup(e, at) || !believed(sig, e.ID) {
			return
		}
	}
	r := f.run(sig.RunID, sig.Type == TypeStatus && sig.Status == StatusRunning)
	if sig.Harness != "" {
		r.Harness = sig.Harness
	}
	if r.FirstSignal.IsZero() {
		r.FirstSignal = at
	}
	r.LastSignal, r.LastEntry = at, at
	status, provisional := r.Status, r.Provisional
	if IsSetup(sig.Type) {
		r.Setups++
	}
	switch sig.Type {
	case TypeSandbox:
		if r.ID != "" && r.Started != nil && e.ID != r.ID+".sandbox" {
			break // the host posts one for each attempt, before there is an agent that could
		}
		if p := payloadOf[SandboxOf](e); p != nil && p.Sandbox.Ref != "" {
			r.Sandbox, r.Ephemeral, r.After = &p.Sandbox.Sandbox, p.Sandbox.Ephemeral, p.After
			r.Parent = cmp.Or(p.Parent, r.Parent)
		}
	case TypeStarted:
		r.Started = cmp.Or(payloadOf[Started](e), r.Started)
	case TypeFailed, TypeOrphaned:
		f.end(r, e, StatusFailed, sig.Type)
	case TypeStatus:
		if sig.Status == StatusCompleted || sig.Status == StatusFailed || sig.Status == StatusCancelled {
			f.end(r, e, sig.Status, sig.Type)
		} else if p := payloadOf[StatusChanged](e); p != nil && e.ID == r.ID+".running" {
			r.Parent = cmp.Or(p.Parent, r.Parent)
		}
	}
	r.Waiting = r.Waiting && r.Status == StatusRunning
	if r.Status != StatusRunning && (r.Ended.IsZero() || status != r.Status || provisional != r.Provisional) {
		r.Ended = at
	}
}

// believed reports whether a signal of a run that has one place has the id of that place. The server gives those of
// hosts to hosts alone, and .started to the first runner. Signals without a run, of other software, have any id.
func believed(sig Fields, id string) bool {
	what := "setup"
	switch sig.Type {
	case TypeSandbox:
		what = "sandbox"
	case TypeStarted:
		what = "started"
	case TypePush:
		what = "push"
	case TypeSync:
		what = "sync"
	case TypeSandboxKept:
		what = "kept"
	}
	return sig.RunID == "" || isSignal(id, sig.RunID, what)
}

// AddLine is Add for an entry that is no signal, of which it takes the fields and when it came. A mirrored line is a
// sign of life of the latest run; a bot's reply is none.
func (f *Fold) AddLine(sig Fields, at time.Time) {
	if n := len(f.list); n > 0 && sig.Type != TypeChat && !sig.Reaction && f.list[n-1].Status == StatusRunning {
		f.list[n-1].LastEntry, f.list[n-1].Waiting = at, false
	}
}

// after applies a host's signal on a run that has ended: push, sync or kept. It is no sign of the run's life.
func (f *Fold) after(sig Fields, e Entry) {
	r := f.runs[sig.RunID]
	if r == nil {
		return
	}
	switch sig.Type {
	case TypePush:
		if p := payloadOf[Pushed](e); p != nil {
			r.Push, r.Pushes = p, r.Pushes+1
		}
	case TypeSync:
		if p := payloadOf[Synced](e); p != nil {
			r.Sync, r.Syncs = p, r.Syncs+1
		}
	case TypeSandboxKept:
		r.Kept = cmp.Or(payloadOf[SandboxKept](e), r.Kept)
	}
}

// payloadOf returns the payload of an entry as a T; nil where it has another form.
func payloadOf[T any](e Entry) *T {
	var p T
	if json.Unmarshal(e.Payload, &p) != nil {
		return nil
	}
	return &p
}

// run returns the run named id. A thread that other software wrote may have signals without a run id: they are one run
// until it ends, and the next one from a further running status on.
func (f *Fold) run(id string, running bool) *Run {
	if f.runs == nil {
		f.runs = map[string]*Run{}
	}
	if r := f.runs[id]; r != nil && (id != "" || !running || r.Status == StatusRunning) {
		return r
	}
	r := &Run{ID: id, Status: StatusRunning}
	f.runs[id] = r
	f.list = append(f.list, r)
	return r
}

// end applies a finished-signal: the first one ends the run, and later ones add to it. One of the runner replaces a
// provisional one of the host.
func (f *Fold) end(r *Run, e Entry, status, typ string) {
	guess := r.ID != "" && strings.HasPrefix(e.ID, r.ID+".orphan.")
	switch {
	case r.Status == StatusRunning:
		r.Status, r.Provisional = status, guess
	case r.Provisional && strings.HasPrefix(e.ID, r.ID+".end."):
		r.Status, r.Provisional, r.Orphaned, r.Cause, r.Totals = status, false, nil, nil, nil
	case status != r.Status || guess && !r.Provisional:
		return // too late: the run has ended
	}
	switch typ {
	case TypeOrphaned:
		r.Orphaned = cmp.Or(r.Orphaned, payloadOf[Orphaned](e))
	case TypeFailed:
		r.Cause = cmp.Or(r.Cause, payloadOf[Failed](e))
	case TypeStatus:
		if p := payloadOf[StatusChanged](e); p != nil {
			r.Totals = cmp.Or(r.Totals, p.Totals)
		}
	}
}

// foldState is the state of a fold with commands. That of any other fold is the list of its runs.
type foldState struct {
	Runs  []*Run     `json:"runs"`
	Execs []OpenExec `json:"execs,omitempty"`
	Exec  time.Time  `json:"exec,omitzero"`
}

// MarshalJSON returns the fold's state.
func (f Fold) MarshalJSON() ([]byte, error) {
	var state any = f.list
	if len(f.execs) > 0 || !f.exec.IsZero() {
		state = foldState{f.list, f.execs, f.exec}
	}
	return jsonscan.Marshal(state)
}

// UnmarshalJSON replaces the fold with the one whose state MarshalJSON returned.
func (f *Fold) UnmarshalJSON(b []byte) error {
	var state foldState
	if jsonscan.IsObject(b) {
		if err := json.Unmarshal(b, &state); err != nil {
			return err
		}
		if len(state.Execs) == 0 && state.Exec.IsZero() {
			return errors.New("state of a fold: an object without commands")
		}
	} else if err := json.Unmarshal(b, &state.Runs); err != nil {
		return err
	}
	list := state.Runs
	runs := make(map[string]*Run, len(list))
	for _, r := range list {
		if r == nil {
			return errors.New("state of a fold: a run is null")
		}
		runs[r.ID] = r // of runs without an id the last one is the current one
	}
	*f = Fold{list: list, runs: runs, execs: state.Execs, exec: state.Exec}
	return nil
}

// Runs returns the thread's runs, in the order of their first signals.
func (f *Fold) Runs() []Run {
	runs := make([]Run, len(f.list))
	for i, r := range f.list {
		runs[i] = *r
	}
	return runs
}

// Run returns the run with this id; false where the thread has none. Of runs without an id it returns the newest.
func (f *Fold) Run(id string) (Run, bool) {
	r := f.runs[id]
	if r == nil {
		return Run{}, false
	}
	return *r, true
}

// Len returns the number of the thread's runs.
func (f *Fold) Len() int { return len(f.list) }

// Latest returns the run whose first signal is the latest; false where the thread has none.
func (f *Fold) Latest() (Run, bool) {
	if len(f.list) == 0 {
		return Run{}, false
	}
	return *f.list[len(f.list)-1], true
}

// Status returns the thread's status: that of its latest run, idle before any.
func (f *Fold) Status() string {
	if r, ok := f.Latest(); ok {
		return r.Status
	}
	return StatusIdle
}
