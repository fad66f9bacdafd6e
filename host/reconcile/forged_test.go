package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// What is on a thread may name the box of another one. The work after the run is done in the thread's own box, which
// is released after it, and the other box is not opened, copied from or released.
func TestForgedBox(t *testing.T) {
	t.Parallel()
	wants := func(entry string) string {
		return strings.Replace(entry, `,"sandbox"`,
			`,"after":{"push":{"repo":"o/r","branch":"b","pr":true},"sync":{"delete":true,"failed":false}},"sandbox"`, 1)
	}
	own := wants(inBox("b1", true, ""))
	other := `"runId":"r1","harness":"pi","sandbox":{"provider":"boxes","ref":"b2"}`
	for _, tt := range []struct {
		name    string
		entries []string
		opened  []string // the boxes that the work is done in
		results bool     // the thread's own reports of it stay believed
	}{
		{"by an id of its own", []string{own, `q {"type":"signal.dispatch.session_started",` + other + `}`}, []string{"b1"}, true},
		{"by a line's id", []string{own, `pi:s:1 {"type":"signal.dispatch.session_started",` + other + `}`}, []string{"b1"}, true},
		{"by its runner", []string{own, `r1.started {"type":"signal.dispatch.session_started",` + other + `}`}, []string{"b1"}, true},
		{"by a second box", []string{own, `q {"type":"signal.dispatch.sandbox",` + other + `}`}, []string{"b1"}, true},
		{"by a forged push", []string{
			own, `q {"type":"signal.dispatch.push","runId":"r1","harness":"pi","pushed":true}`,
			`p {"type":"signal.dispatch.sync","runId":"r1","harness":"pi","copied":1}`,
		}, []string{"b1"}, true},
		// A writer without a run can post what its host does: the label decides.
		{"by who posts as its host", []string{wants(inBox("b2", true, ""))}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.labels["b1"], w.labels["b2"] = w.label("t1", "true"), w.label("t2", "true")
			w.labels["b1"][sandbox.LabelRun] = "r1"
			w.post("t2", running, inBox("b2", true, "")) // at work
			w.post("t1", append(append([]string{running}, tt.entries...), completed)...)
			r := w.reconciler()
			r.Known = nil
			done := 0
			r.Host = reconcile.Host{
				Push: func(context.Context, sandbox.Sandbox, string, thread.Run, string) thread.Pushed {
					done++
					return thread.Pushed{Pushed: true, Branch: "b"}
				},
				Sync: func(context.Context, sandbox.Sandbox, string, thread.Run) (thread.Synced, bool) {
					done++
					return thread.Synced{Copied: 1}, true
				},
			}
			for range 3 {
				if _, err := r.Thread(t.Context(), "t1"); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(w.opened, tt.opened) || (done == 2) != tt.results {
				t.Errorf("opened %v and worked %d times, want %v", w.opened, done, tt.opened)
			}
			if slices.Contains(w.gone, "b2") || slices.Contains(w.gone, "b1") != tt.results {
				t.Errorf("released %v", w.gone)
			}
		})
	}
}
