package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// A box is released when nobody needs it, and no other.
func TestReap(t *testing.T) {
	const failed = `r1.end.0 {"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"failed"}`
	after := func(what string) string {
		return strings.Replace(inBox("b1", true, ""), `,"sandbox"`, `,"after":`+what+`,"sandbox"`, 1)
	}
	const push = `{"push":{"repo":"o/r","branch":"b","pr":true}}`
	for _, tt := range []struct {
		name    string
		entries []string
		ahead   time.Duration
		set     func(*world)
		gone    string
		kept    string // the reason on the thread
	}{
		{"ended", []string{running, inBox("b1", true, ""), completed}, 0, nil, "b1", ""},
		{"open", []string{running, inBox("b1", true, "")}, 0, nil, "", ""},
		{"to be kept", []string{running, inBox("b1", false, ""), completed}, 0, nil, "", ""},
		{"of another installation", []string{running, inBox("b1", true, ""), completed}, 0, func(w *world) {
			w.labels["b1"][sandbox.LabelInstallation] = "another"
		}, "", ""},
		{"of no installation", []string{running, inBox("b1", true, ""), completed}, 0, func(w *world) {
			delete(w.labels["b1"], sandbox.LabelInstallation)
		}, "", ""},
		{"a launch that died before it could name it", []string{running}, time.Hour, func(w *world) {
			w.labels["b1"][sandbox.LabelRun] = "r1"
		}, "b1", ""},
		{"a launch that may be under way", []string{running}, 0, nil, "", ""},
		{"silent, and its runner is alive", []string{running, inBox("b1", true, "")}, time.Hour, func(w *world) { w.runs["b1"] = true }, "", ""},
		{"silent, and no runner is in it", []string{running, inBox("b1", true, "")}, time.Hour, nil, "b1", ""},
		{"in error", []string{running, inBox("b1", true, ""), failed}, 0, func(w *world) { w.states["b1"] = "error" }, "b1", ""},
		{"stopped", []string{running, inBox("b1", true, ""), completed}, 0, func(w *world) { w.states["b1"] = "stopped" }, "b1", ""},
		{"stopped, with a repository", []string{running, inBox("b1", true, ""), completed}, 0, func(w *world) {
			w.states["b1"], w.labels["b1"][sandbox.LabelTree] = "stopped", sandbox.TreeRepository
		}, "", "what is in it is not known: it is stopped"},
		{"stopped, with a repository, a day ago", []string{running, inBox("b1", true, ""), completed}, 25 * time.Hour, func(w *world) {
			w.states["b1"], w.labels["b1"][sandbox.LabelTree] = "stopped", sandbox.TreeRepository
		}, "b1", ""},
		{"with unsaved work", []string{running, inBox("b1", true, ""), completed}, 0, func(w *world) {
			w.labels["b1"][sandbox.LabelTree] = sandbox.TreeRepository
		}, "", "2 commits"},
		{"with work that was pushed", []string{running, inBox("b1", true, ""), completed, `r1.push.0 {"type":"signal.dispatch.push","runId":"r1","pushed":true}`}, 0, func(w *world) {
			w.labels["b1"][sandbox.LabelTree] = sandbox.TreeRepository
		}, "b1", ""},
		{"with work that could not be pushed", []string{running, after(push), completed, `r1.push.0 {"type":"signal.dispatch.push","runId":"r1","pushed":false,"error":"no"}`}, 0, nil, "", "its work is not pushed"},
		{"with work that could not be pushed, a day ago", []string{running, after(push), completed}, 25 * time.Hour, nil, "b1", ""},
		{"with a folder to be copied back", []string{running, after(`{"sync":{"delete":false,"failed":false}}`), completed}, 0, nil, "", "its folder is not copied back"},
		{"with a folder of a failed run", []string{running, after(`{"sync":{"delete":false,"failed":false}}`), failed}, 0, nil, "b1", ""},
		{"an earlier box of the thread", []string{
			running, inBox("b1", true, ""), completed, strings.ReplaceAll(running, "r1", "r2"),
			strings.ReplaceAll(inBox("b9", true, ""), "r1", "r2"),
		}, 0, nil, "b1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			w.labels["b1"], w.labels["b2"], w.labels["b3"] = w.label("t1", "true"), w.label("t1", ""),
				w.label("t2", "true")
			if tt.set != nil {
				tt.set(w)
			}
			w.post("t1", tt.entries...)
			w.ahead.Store(int64(tt.ahead))
			r := w.reconciler()
			r.Host.Unsaved = func(context.Context, sandbox.Sandbox, sandbox.Box) (string, error) {
				return "2 commits",
					nil
			}
			for range 2 {
				if _, err := r.Thread(t.Context(), "t1"); err != nil {
					t.Fatal(err)
				}
			}
			if got := strings.Join(w.gone, " "); got != tt.gone {
				t.Errorf("released %q, want %q", got, tt.gone)
			}
			kept := ""
			for _, e := range w.entries("t1") {
				if strings.HasPrefix(e, "r1.kept.") {
					kept += e
				}
			}
			if strings.Count(kept, "sandbox_kept") > 1 || !strings.Contains(kept, tt.kept) || tt.kept == "" &&
				kept != "" {
				t.Errorf("on the thread: %q, want the reason %q", kept, tt.kept)
			}
			if s := w.states["b1"]; s != "" && len(w.opened) > 0 {
				t.Errorf("a box in state %s was opened", s)
			}
		})
	}
}

// A box that anybody holds is not released; one that is released can't be held any more.
func TestLeaseHoldsBox(t *testing.T) {
	w := newWorld(t)
	w.health["b1"], w.labels["b1"] = sandbox.Live, w.label("t1", "true")
	ref := sandbox.Ref{Provider: "boxes", ID: "b1"}
	client, _ := w.client(lease.Stream(ref))
	l := lease.OnStream{Client: client}
	attached := rows.Hold{Holder: "attached", ThreadID: "t1", RunID: "r1", TTL: lease.TTL}
	for _, h := range []rows.Hold{lease.OfRun("t1", "r1"), attached} {
		if err := l.Hold(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	w.post("t1", running, inBox("b1", true, ""), completed)
	settle := func() {
		t.Helper()
		if _, err := w.reconciler().Thread(t.Context(), "t1"); err != nil {
			t.Fatal(err)
		}
	}
	if settle(); len(w.gone) > 0 {
		t.Error("released under a host that copies from it")
	}
	w.ahead.Store(int64(lease.TTL - time.Minute))
	if settle(); len(w.gone) > 0 {
		t.Error("released before the hold has expired")
	}
	if err := l.Drop(t.Context(), "attached"); err != nil {
		t.Fatal(err)
	}
	// A new run of the thread holds the box before it is open on the thread.
	if err := l.Hold(t.Context(), lease.OfRun("t2", "r2")); err != nil {
		t.Fatal(err)
	}
	w.post("t2", strings.ReplaceAll(running, "r1", "r2"))
	if settle(); len(w.gone) > 0 {
		t.Error("released under a run of another thread")
	}
	w.post("t2", strings.ReplaceAll(completed, "r1", "r2"))
	if settle(); len(w.gone) != 1 {
		t.Error("not released although nobody holds it")
	}
	if err := l.Hold(t.Context(), lease.OfRun("t1", "r3")); err != lease.ErrReleased {
		t.Errorf("held after its release: %v", err)
	}
}

// What a launch wanted is done by a host that can, once, and the result is on the thread.
func TestAfter(t *testing.T) {
	w := newWorld(t)
	w.health["b1"], w.labels["b1"] = sandbox.Live, w.label("t1", "true")
	w.post(
		"t1",
		`r1.prompt {"type":"chat","text":"make it","runId":"r1"}`,
		running,
		strings.Replace(
			inBox("b1", true, ""),
			`,"sandbox"`,
			`,"after":{"push":{"repo":"o/r","branch":"b","pr":true},"sync":{"delete":true,"failed":false}},"sandbox"`,
			1,
		),
		completed,
	)
	pushes, syncs, broken := 0, 0, true
	r := w.reconciler()
	if s, err := r.Thread(t.Context(), "t1"); err != nil || !s.Open || len(w.gone) > 0 {
		t.Errorf("by a host that can't: %+v, %v, released %v", s, err, w.gone)
	}
	r.Host = reconcile.Host{
		Push: func(_ context.Context, _ sandbox.Sandbox, id string, run thread.Run, intent string) thread.Pushed {
			if pushes++; id != "t1" || run.ID != "r1" || intent != "make it" || run.After.Push.Repo != "o/r" {
				t.Errorf("push %s %+v %q", id, run, intent)
			}
			if broken {
				return thread.Pushed{Branch: "b", Error: "the remote is away"}
			}
			return thread.Pushed{Pushed: true, Branch: "b", Commit: "c0ffee", PRURL: "https://github.com/o/r/pull/1"}
		},
		Sync: func(context.Context, sandbox.Sandbox, string, thread.Run) (thread.Synced, bool) {
			syncs++
			return thread.Synced{Copied: 3}, true
		},
	}
	for range 2 {
		if s, err := r.Thread(t.Context(), "t1"); err != nil || !s.Open || len(w.gone) > 0 {
			t.Errorf("while the remote is away: %+v, %v, released %v", s, err, w.gone)
		}
	}
	broken = false
	for range 3 {
		if _, err := r.Thread(t.Context(), "t1"); err != nil {
			t.Error(err)
		}
	}
	if pushes != 3 || syncs != 1 || strings.Join(w.gone, " ") != "b1" {
		t.Errorf("%d pushes, %d copies, released %v", pushes, syncs, w.gone)
	}
	var results []string
	for _, e := range w.entries("t1") {
		if id, payload, _ := strings.Cut(e, " "); strings.Contains(id, ".push.") || strings.Contains(id, ".sync.") {
			results = append(results, id+" "+payload)
		}
	}
	if len(results) != 3 || !strings.HasPrefix(results[0], "r1.sync.0 ") ||
		!strings.Contains(results[1], "the remote is away") ||
		!strings.HasPrefix(results[2], "r1.push.1 ") ||
		!strings.Contains(results[2], `"prUrl":"https://github.com/o/r/pull/1"`) {
		t.Errorf("results %v", results)
	}
}
