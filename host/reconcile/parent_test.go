package reconcile_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
)

// A parent gets a run's end once, however many look.
func TestNotify(t *testing.T) {
	w := newWorld(t)
	w.post("t1", running, inBox("b1", false, "parent"), answer, completed)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := w.reconciler().Thread(t.Context(), "t1"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	entries := w.entries("parent")
	if len(entries) != 2 ||
		!strings.Contains(entries[0], `"childThreadId":"t1","status":"completed","text":"It is done."`) ||
		!strings.Contains(entries[1], `"type":"chat","text":"The task on thread t1 has completed.\n\nIt is done.","quiet":true`) {
		t.Errorf("the parent got %v", entries)
	}
}

// The parent of a launch that failed before it had a box is in its running entry.
func TestNotifyFailedLaunch(t *testing.T) {
	w := newWorld(t)
	w.post(
		"t1",
		strings.Replace(running, `"running"}`, `"running","parent":{"threadId":"parent"}}`, 1),
		`r1.orphan.0 {"type":"signal.thread.pi_failed","runId":"r1","harness":"pi","errorClass":"launch","message":"no such image","exitCode":null,"signal":null}`,
		`r1.orphan.1 {"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"failed"}`,
	)
	w.ahead.Store(int64(11 * time.Minute))
	if s, err := w.reconciler().Thread(t.Context(), "t1"); err != nil || len(s.Actions) != 1 ||
		s.Actions[0].Did != reconcile.Notified {
		t.Errorf("got %+v, %v", s, err)
	}
	if entries := w.entries("parent"); len(entries) != 2 ||
		!strings.Contains(entries[1], "has failed.\\n\\nno such image") {
		t.Errorf("the parent got %v", entries)
	}
}

// A provisional end is delivered when it has stood for ten minutes, and corrected, once, where the runner's own
// replaces it.
func TestNotifyCorrects(t *testing.T) {
	w := newWorld(t)
	w.health["b1"] = sandbox.Gone
	w.post("t1", running, inBox("b1", false, "parent"), answer)
	did := func(ahead time.Duration) (all []string) {
		t.Helper()
		w.ahead.Store(int64(ahead))
		s, err := w.reconciler().Thread(t.Context(), "t1")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range s.Actions {
			all = append(all, d.Did)
		}
		return all
	}
	if got := did(3 * time.Minute); len(got) != 1 || got[0] != reconcile.Orphaned {
		t.Errorf("at first: %v", got)
	}
	if got := did(9 * time.Minute); len(got) > 0 || len(w.entries("parent")) > 0 {
		t.Errorf("too early: %v", got)
	}
	if got := did(14 * time.Minute); len(got) != 1 || got[0] != reconcile.Notified {
		t.Errorf("when it stands: %v", got)
	}
	w.post("t1", completed)
	if got := did(15 * time.Minute); len(got) != 1 || got[0] != reconcile.Corrected {
		t.Errorf("when the runner is back: %v", got)
	}
	if got := did(16 * time.Minute); len(got) > 0 {
		t.Errorf("again: %v", got)
	}
	entries := w.entries("parent")
	if len(entries) != 4 || !strings.HasPrefix(entries[2], "t1.r1.finished.corrected ") ||
		!strings.Contains(entries[2], `"status":"completed"`) ||
		!strings.Contains(entries[2], `"corrected":true`) ||
		!strings.HasPrefix(entries[3], "t1.r1.result.corrected ") {
		t.Errorf("the parent got %v", entries)
	}
}

// A failure that replaces a provisional one is delivered, once, where its cause differs.
func TestNotifyCorrectsCause(t *testing.T) {
	w := newWorld(t)
	failed := func(id, cause string) []string {
		return []string{
			`r1.` + id + `.0 {"type":"signal.thread.pi_failed","runId":"r1","harness":"pi","errorClass":"launch",` +
				`"message":"` + cause + `","exitCode":null,"signal":null}`,
			`r1.` + id + `.1 {"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"failed"}`,
		}
	}
	settle := func(want ...string) {
		t.Helper()
		s, err := w.reconciler().Thread(t.Context(), "t1")
		var did []string
		for _, d := range s.Actions {
			did = append(did, d.Did)
		}
		if err != nil || !slices.Equal(did, want) {
			t.Errorf("got %v, %v, want %v", did, err, want)
		}
	}
	w.post("t1", strings.Replace(running, `"running"}`, `"running","parent":{"threadId":"parent"}}`, 1))
	w.post("t1", failed("orphan", "the host was stopped")...)
	w.ahead.Store(int64(11 * time.Minute))
	settle(reconcile.Notified)
	settle()
	w.post("t1", failed("end", "no space left")...)
	settle(reconcile.Corrected)
	settle()
	entries := w.entries("parent")
	if len(entries) != 4 || !strings.HasPrefix(entries[2], "t1.r1.finished.corrected ") ||
		!strings.Contains(entries[3], "has failed for another reason.\\n\\nno space left") {
		t.Errorf("the parent got %v", entries)
	}
}
