package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

const (
	execStarted = `x1.exec.0 {"type":"signal.exec.started","execId":"x1","command":"make","timeoutMs":3600000}`
	execRunning = `x1.exec.1 {"type":"signal.exec.running","execId":"x1","pid":7,"startTicks":9,"bootId":"b","cwd":"/w","sandbox":{"provider":"boxes","ref":"b1"}}`
	execOutput  = `x1.exec.2 {"type":"signal.exec.output","execId":"x1","stream":"stdout","text":"a"}`
	execEnd     = `x1.exec.3 {"type":"signal.exec.finished","execId":"x1","exitCode":0,"signal":null,"durationMs":1}`
)

// A command gets an end on evidence only, and once; the status of its thread stays.
func TestSettleExec(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []string
		ahead   time.Duration
		set     func(*world)
		end     string // the beginning of the error of the end; "" for no end
		id      string // of the end
	}{
		{"not started yet", []string{execStarted}, 9 * time.Minute, nil, "", ""},
		{"never started", []string{execStarted}, 11 * time.Minute, nil, "it was not started", "x1.exec.1"},
		{"it runs", []string{execStarted, execRunning, execOutput}, 50 * time.Hour, func(w *world) { w.runs["b1"] = true }, "", ""},
		{"its supervisor is dead", []string{execStarted, execRunning, execOutput}, 35 * time.Second, nil, "its supervisor was killed", "x1.exec.3"},
		{"the same, and heard of", []string{execStarted, execRunning, execOutput}, 5 * time.Second, nil, "", ""},
		{"its box is gone, by two looks", []string{execStarted, execRunning}, 29 * time.Minute, gone, "", ""},
		{"its box is gone", []string{execStarted, execRunning}, 31 * time.Minute, gone, "its sandbox is gone", "x1.exec.2"},
		{"the same, and heard of", []string{execStarted, execRunning}, 90 * time.Second, gone, "", ""},
		{"nobody knows", []string{execStarted, execRunning}, 80 * time.Minute, func(w *world) { w.health["b1"] = sandbox.Unknown }, "", ""},
		{"nobody knows, past its time", []string{execStarted, execRunning}, 91 * time.Minute, func(w *world) { w.health["b1"] = sandbox.Unknown }, "no entry for", "x1.exec.2"},
		{"ended", []string{execStarted, execRunning, execOutput, execEnd}, 50 * time.Hour, gone, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.health["b1"] = sandbox.Live
			if tt.set != nil {
				tt.set(w)
			}
			w.post("t1", tt.entries...)
			w.ahead.Store(int64(tt.ahead))
			for range 2 { // the second time it does nothing more
				s, err := w.reconciler().Thread(t.Context(), "t1")
				if err != nil || s.Status != "idle" {
					t.Fatalf("got %+v, %v", s, err)
				}
			}
			entries := w.entries("t1")
			if tt.end == "" {
				if len(entries) != len(tt.entries) {
					t.Errorf("the thread grew: %v", entries[len(tt.entries):])
				}
				return
			}
			if len(entries) != len(tt.entries)+1 {
				t.Fatalf("entries %v", entries)
			}
			last := entries[len(entries)-1]
			if !strings.HasPrefix(last, tt.id+" ") || !strings.Contains(last, `"error":"`+tt.end) {
				t.Errorf("the end is %s", last)
			}
		})
	}
}

// A box with a command in it is not released, whatever its runs came to; after the command's end it is.
func TestExecHoldsItsBox(t *testing.T) {
	w := newWorld(t)
	w.health["b1"], w.runs["b1"] = sandbox.Live, true
	w.labels["b1"] = w.label("t1", "true")
	w.post("t1", running, inBox("b1", true, ""), answer, completed, execStarted, execRunning)
	client, _ := w.client(lease.Stream(sandbox.Ref{Provider: "boxes", ID: "b1"}))
	hold := rows.Hold{Holder: "exec:t1/x1", ThreadID: "t1", RunID: "x1"}
	if err := (lease.OnStream{Client: client}).Hold(t.Context(), hold); err != nil {
		t.Fatal(err)
	}
	pass := func() (did []string) {
		s, err := w.reconciler().Thread(t.Context(), "t1")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range s.Actions {
			did = append(did, a.Did)
		}
		return did
	}
	w.ahead.Store(int64(time.Hour))
	if did := pass(); len(did) > 0 {
		t.Fatalf("with a command in the box: %v", did)
	}
	w.post("t1", strings.Replace(execEnd, "x1.exec.3", thread.ExecID("x1", 2), 1))
	if did := pass(); len(did) != 1 || did[0] != "reaped" {
		t.Errorf("after the command: %v", did)
	}
}
