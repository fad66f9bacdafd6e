package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/sandbox"
)

// rowsOf is the rows of boxes that the test sets. No thread's row runs, and nobody holds a box.
type rowsOf struct {
	reconcile.Rows

	boxes   []resolve.Row
	threads []string // in the box s1
	asked   func()   // when the threads are read; nil for nothing

	mu      sync.Mutex
	notices []resolve.Notice
	noted   error // of Noted
	gone    []string
}

func (r *rowsOf) Running(context.Context, string) (resolve.Running, bool, error) {
	return resolve.Running{}, false, nil
}
func (r *rowsOf) Unhold(context.Context, string, []string) error                { return nil }
func (r *rowsOf) Commands(context.Context, string) ([]string, error)            { return nil, nil }
func (r *rowsOf) Stale(context.Context) ([]string, error)                       { return nil, nil }
func (r *rowsOf) Boxes(context.Context, []string) ([]resolve.Row, error)        { return r.boxes, nil }
func (r *rowsOf) BoxAt(context.Context, string, string) (row string, err error) { return "s1", nil }
func (r *rowsOf) Lease(string) lease.Lease                                      { return unheld{} }

func (r *rowsOf) InBox(context.Context, string) ([]string, error) {
	if r.asked != nil {
		r.asked()
	}
	return r.threads, nil
}

func (r *rowsOf) Gone(_ context.Context, row string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = append(r.gone, row)
	return nil
}

func (r *rowsOf) Notices(context.Context) ([]resolve.Notice, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notices), nil
}

func (r *rowsOf) Noted(_ context.Context, row string, threads []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noted == nil {
		r.notices = slices.DeleteFunc(r.notices, func(n resolve.Notice) bool {
			return n.Row == row && slices.Contains(threads, n.Thread)
		})
	}
	return r.noted
}

// unheld is a lease without holds.
type unheld struct{ lease.Lease }

func (unheld) Release(_ context.Context, _ string, may func(lease.State) error) error {
	return may(lease.State{})
}

// A box of several threads is released when none of them needs it, whichever it was made for.
func TestReapShared(t *testing.T) {
	const (
		push   = `,"after":{"push":{"repo":"o/r","branch":"b","pr":true}},"sandbox"`
		orphan = `r2.orphan.0 {"type":"signal.thread.pi_session_orphaned","runId":"r2","harness":"pi","reason":"silent"}`
		pushed = `r2.push.0 {"type":"signal.dispatch.push","runId":"r2","pushed":true}`
	)
	second := func(entry string) string { return strings.ReplaceAll(entry, "r1", "r2") }
	in := second(inBox("b1", true, ""))
	wanted := strings.Replace(in, `,"sandbox"`, push, 1)
	ended := second(completed)
	for _, tt := range []struct {
		name    string
		entries []string // of the other thread
		ahead   time.Duration
		set     func(*world)
		gone    bool
		kept    string // the reason on the other thread
	}{
		{name: "never ran", gone: true},
		{name: "ran in another box", entries: []string{second(running), second(inBox("b9", true, ""))}, gone: true},
		{name: "has ended", entries: []string{second(running), in, ended}, gone: true},
		{name: "runs", entries: []string{second(running), in}},
		{name: "wants a push", entries: []string{second(running), wanted, ended}, kept: "its work is not pushed"},
		{name: "has pushed", entries: []string{second(running), wanted, ended, pushed}, gone: true},
		{
			name: "wanted a push a day ago", entries: []string{second(running), wanted, ended}, ahead: 25 * time.Hour,
			gone: true,
		},
		{
			name: "has unsaved work", entries: []string{second(running), in, ended}, kept: "2 commits",
			set: func(w *world) { w.labels["b1"][sandbox.LabelTree] = sandbox.TreeRepository },
		},
		{
			name: "has an end that its runner may replace", entries: []string{second(running), in, orphan},
			set: func(w *world) { w.runs["b1"] = true },
		},
		{name: "keeps it", entries: []string{second(running), second(inBox("b1", false, "")), ended}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			w.labels["b1"] = w.label("t1", "true")
			w.labels["b1"][sandbox.LabelRow] = "s1"
			saved := `r1.push.0 {"type":"signal.dispatch.push","runId":"r1","pushed":true}`
			w.post("t1", running, inBox("b1", true, ""), completed, saved)
			if tt.entries != nil {
				w.post("t2", tt.entries...)
			}
			if tt.set != nil {
				tt.set(w)
			}
			w.ahead.Store(int64(tt.ahead))
			r := w.reconciler()
			r.Rows = &rowsOf{threads: []string{"t1", "t2"}}
			r.Host.Unsaved = func(context.Context, sandbox.Sandbox, sandbox.Box) (string, error) {
				return "2 commits", nil
			}
			for range 2 {
				if s, err := r.Thread(t.Context(), "t1"); err != nil || !tt.gone && tt.name != "keeps it" && !s.Open {
					t.Fatalf("%+v, %v", s, err)
				}
			}
			if got := len(w.gone) > 0; got != tt.gone {
				t.Errorf("released %v, want %t", w.gone, tt.gone)
			}
			all := strings.Join(w.entries("t2"), "\n")
			kept := strings.Count(all, "sandbox_kept")
			if kept > 1 || kept == 1 != (tt.kept != "") || !strings.Contains(all, tt.kept) {
				t.Errorf("on the other thread: %s", all)
			}
			if all := strings.Join(w.entries("t1"), "\n"); strings.Contains(all, "sandbox_kept") {
				t.Errorf("on the thread: %s", all)
			}
		})
	}
}

// A run of another thread that ends while the box is released keeps it, too.
func TestReapSharedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.health["b1"], w.labels["b1"] = sandbox.Live, w.label("t1", "true")
	w.labels["b1"][sandbox.LabelRow] = "s1"
	w.post("t1", running, inBox("b1", true, ""), completed)
	rows, looks := &rowsOf{threads: []string{"t1", "t2"}}, 0
	rows.asked = func() {
		if looks++; looks == 2 {
			w.post("t2", running, strings.Replace(inBox("b1", true, ""), `,"sandbox"`,
				`,"after":{"push":{"repo":"o/r","branch":"b","pr":true}},"sandbox"`, 1), completed)
		}
	}
	r := w.reconciler()
	r.Rows = rows
	if _, err := r.Thread(t.Context(), "t1"); err != nil {
		t.Fatal(err)
	}
	if looks != 2 || len(w.gone) > 0 {
		t.Errorf("%d looks, released %v", looks, w.gone)
	}
}

// A sweep deletes the machines of a live row that are not its own, and posts what a host that died has not.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"b1", "b2", "b3"} {
		w.health[id], w.labels[id] = sandbox.Live, w.label("t1", "")
		w.labels[id][sandbox.LabelRow] = "s1"
	}
	w.labels["b3"][sandbox.LabelRow] = "s3"
	w.post("t1", running, inBox("b1", false, ""), completed)
	rows := &rowsOf{
		boxes: []resolve.Row{
			{ID: "s1", Provider: "boxes", Ref: "b1", Status: resolve.Live},
			{ID: "s3", Provider: "boxes", Status: resolve.Pending}, // its machine may not be known yet
		},
		notices: []resolve.Notice{{Thread: "t1", Row: "s1", From: "s0"}, {Thread: "t3", Row: "s1", From: "s0"}},
		noted:   errors.New("the database is away"),
	}
	r := w.reconciler()
	r.Rows = rows
	for range 2 {
		err := r.All(t.Context(), nil, func(string, reconcile.State) {})
		if (err == nil) != (rows.noted == nil) {
			t.Error(err)
		}
		rows.noted = nil
	}
	if got := strings.Join(w.gone, " "); got != "b2" {
		t.Errorf("deleted %q, want b2", got)
	}
	for _, id := range []string{"t1", "t3"} {
		all := strings.Join(w.entries(id), "\n")
		if strings.Count(all, `{"type":"signal.thread.sandbox_resumed","sandbox":"s1","from":"s0"}`) != 1 {
			t.Errorf("on the thread %s: %s", id, all)
		}
	}
	if len(rows.notices) > 0 {
		t.Errorf("left: %v", rows.notices)
	}
}
