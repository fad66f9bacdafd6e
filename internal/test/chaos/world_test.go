package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakerows"
	"arbe.0sk.ar/runner/thread"
)

// reapAfter is how long unsaved work is kept.
const reapAfter = 24 * time.Hour

// world is one schedule.
type world struct {
	t       *testing.T
	ctx     context.Context
	wg      sync.WaitGroup
	threads *threads
	cloud   *cloud
	rows    *fakerows.Store
	runner  string // a file
	pids    int    // guarded by mu

	mu        sync.Mutex
	rng       *rand.Rand
	faults    bool
	lying     bool // the provider loses sight of boxes for a moment
	lie       lie  // what the provider answers for a while
	down      bool // the thread server
	cut       bool // the boxes' network
	folds     map[string]*thread.Fold
	ends      map[string]bool     // runs and commands whose own end is on their thread: thread/id
	alive     map[string]*agent   // by thread and run
	launching map[string]*process // by thread and run
	commands  map[string]*command // by thread and command
	discarded map[string]bool     // boxes that their makers have deleted
	pushed    map[string]bool     // branches
	faulty    []string
	trace     []string
}

// newWorld returns a world without faults. stop ends all that works in it.
func newWorld(t *testing.T, seed uint64) (w *world, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w = &world{
		t: t, ctx: ctx, threads: newThreads(), rng: rand.New(rand.NewPCG(seed, 1)), rows: fakerows.New("cloud"),
		folds: map[string]*thread.Fold{}, ends: map[string]bool{}, alive: map[string]*agent{},
		launching: map[string]*process{},
		pushed:    map[string]bool{}, commands: map[string]*command{}, discarded: map[string]bool{},
	}
	w.threads.appended = w.appended
	w.cloud = &cloud{w: w, boxes: map[string]*machine{}}
	return w, func() { cancel(); w.wg.Wait() }
}

func (w *world) rand(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// fault draws the fate of one request.
func (w *world) fault() fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return refused
	}
	if !w.faults || w.rng.IntN(mostFine) > 0 {
		return fine
	}
	return fault(w.rng.IntN(int(slow))) + 1
}

func (w *world) lies() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lying && w.faults && w.rng.IntN(4) == 0
}

// lie is a false answer of the provider for a while, before the truth.
type lie struct {
	kind lieKind
	box  string // "" for all
}

type lieKind int

const (
	truth    lieKind = iota
	notFound         // there is no such box
	faulty           // it is in error
	unlisted         // the list does not have it
	silent           // no answer
	mostLies
)

// lieAbout returns what the provider lies about a box.
func (w *world) lieAbout(id string) lieKind {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lie.box == "" || w.lie.box == id {
		return w.lie.kind
	}
	return truth
}

func (w *world) partitioned() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

func (w *world) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// broken notes that the schedule is broken.
func (w *world) broken(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faulty = append(w.faulty, fmt.Sprintf(format, args...))
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, time.Now().Format("02 15:04:05 ")+fmt.Sprintf(format, args...))
}

// appended checks each entry as it comes.
func (w *world) appended(id string, e thread.Entry) {
	w.mu.Lock()
	fold := w.folds[id]
	if fold == nil {
		fold = &thread.Fold{}
		w.folds[id] = fold
	}
	before, had := fold.Latest()
	fold.Add(e)
	after, _ := fold.Latest()
	if of, is := strings.CutSuffix(e.ID, ".end.0"); is {
		w.ends[id+"/"+of] = true
	}
	if f, err := thread.Scan(e.Payload); err == nil && f.Type == thread.TypeExecFinished {
		of, _, _ := thread.ParseExecID(e.ID)
		w.ends[id+"/"+of] = true
	}
	w.mu.Unlock()
	if !strings.Contains(e.ID, ".beat.") {
		w.note("%s %s %s", id, e.ID, e.Payload)
	}
	if had && before.Status == thread.StatusRunning && after.ID != before.ID {
		w.broken("run %s began while %s was open", after.ID, before.ID)
	}
	w.given(id, e)
}

// posted reports whether the end of a run or a command is on its thread.
func (w *world) posted(id, of string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ends[id+"/"+of]
}

// given checks an end that a host has given a run or a command: neither may be alive.
func (w *world) given(id string, e thread.Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	broken := func(format string, args ...any) { w.faulty = append(w.faulty, fmt.Sprintf(format, args...)) }
	if command, _, is := thread.ParseExecID(e.ID); is {
		x := w.commands[id+"/"+command]
		if f, err := thread.Scan(e.Payload); err == nil && f.Type == thread.TypeExecFinished && x != nil && x.lives() {
			broken("the live command %s of %s was given up: %s", command, id, e.Payload)
		}
		return
	}
	run, is := strings.CutSuffix(e.ID, ".orphan.0")
	var p thread.Orphaned
	if !is || json.Unmarshal(e.Payload, &p) != nil || p.Type != thread.TypeOrphaned {
		return
	}
	if a := w.alive[id+"/"+run]; a != nil && a.alive() {
		broken("the live run %s of %s was given up: %s", run, id, p.Reason)
	}
	r, _ := w.folds[id].Run(run)
	own := r.Sandbox != nil && w.discarded[r.Sandbox.Ref] // the launch has failed, and its entry of that comes later
	if l := w.launching[id+"/"+run]; l != nil && !l.dead() && !own {
		broken("run %s of %s was given up while it was launched: %s", run, id, p.Reason)
	}
}

// check checks what is left at the end.
func (w *world) check() {
	for id, m := range w.cloud.boxes {
		if m.labels["foreign"] == "" {
			w.broken("%s of %s/%s is left", id, m.labels[sandbox.LabelThread], m.labels[sandbox.LabelRun])
		}
	}
	if w.cloud.boxes["foreign"] == nil {
		w.broken("the box of another installation is gone")
	}
	told := map[string]string{}
	count := map[string]int{}
	for _, e := range w.threads.entries("parent") {
		var p thread.ChildFinished
		if json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeChildFinished {
			told[p.ChildThreadID+"/"+p.RunID] = p.Status
			count[p.ChildThreadID+"/"+p.RunID]++
		}
	}
	for id, fold := range w.folds {
		if strings.HasPrefix(id, "_box_") || id == "parent" {
			continue
		}
		ends := map[string]string{}
		for _, e := range w.threads.entries(id) {
			if run, is := strings.CutSuffix(e.ID, ".end.0"); is {
				var p thread.StatusChanged
				_ = json.Unmarshal(e.Payload, &p)
				ends[run] = p.Status
			}
		}
		for _, r := range fold.Runs() {
			key := id + "/" + r.ID
			switch end, posted := ends[r.ID]; {
			case r.Status == thread.StatusRunning:
				w.broken("run %s is never settled", key)
			case posted && r.Status != end:
				w.broken("run %s is %s, and its runner posted %s", key, r.Status, end)
			}
			if r.Parent != nil && (told[key] != r.Status || count[key] > 2) {
				w.broken("the parent of %s, which is %s, has %q in %d results", key, r.Status, told[key], count[key])
			}
		}
		for _, x := range fold.OpenExecs() {
			w.broken("command %s of %s has no end", x.ID, id)
		}
	}
	w.checkRows()
}
