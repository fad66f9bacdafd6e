package view_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

func TestLive(t *testing.T) {
	last := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	run := view.Pulse{Status: thread.StatusRunning, Last: last, Next: 5 * time.Second}
	waiting, early := run, run
	waiting.Waiting, waiting.Next = true, time.Minute
	early.Next = 0
	for _, tt := range []struct {
		name  string
		pulse view.Pulse
		after time.Duration
		want  string
	}{
		{"no run", view.Pulse{Status: thread.StatusIdle}, time.Hour, "idle 0s 0s"},
		{"nothing is known", view.Pulse{}, time.Hour, "idle 0s 0s"},
		{"at once", run, 0, "working 0s 0s"},
		{"the server's clock is behind", run, -time.Hour, "working 0s 0s"},
		{"a heartbeat is due", run, 7 * time.Second, "working 7s 0s"},
		{"one is missing", run, 8 * time.Second, "silent 8s 7s"},
		{"the third is due", run, 15*time.Second - 1, "silent 15s 0s"},
		{"three are missing", run, 15 * time.Second, "dead 15s 0s"},
		{"for long", run, 40 * time.Second, "dead 40s 0s"},
		{"waiting", waiting, 80 * time.Second, "waiting 1m20s 0s"},
		{"waiting and silent", waiting, 90 * time.Second, "silent 1m30s 1m30s"},
		{"waiting and dead", waiting, 3 * time.Minute, "dead 3m0s 0s"},
		{"before a heartbeat", early, 40 * time.Second, "working 40s 0s"},
		{"before a heartbeat, dead", early, 90 * time.Second, "dead 1m30s 0s"},
		{"ended", view.Pulse{Status: thread.StatusFailed, Last: last}, time.Hour, "ended 0s 0s"},
	} {
		l := tt.pulse.At(last.Add(tt.after))
		got := fmt.Sprintln(l.State, l.Silence.Round(time.Second), l.DeadIn.Round(time.Second))
		if got != tt.want+"\n" {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// signal returns a signal of a run that the server received some seconds after noon.
func signal(id, typ string, second int, more string) thread.Entry {
	at := thread.Stamp(time.Date(2026, 1, 1, 12, 0, second, 0, time.UTC))
	return thread.Entry{ID: "r1." + id, TS: at, At: at, Payload: json.RawMessage(
		`{"type":"signal.` + typ + `","runId":"r1","harness":"pi"` + more + `}`)}
}

// A Watch has the signs of life of the latest run, and a summary of the same thread has the same pulse.
func TestWatch(t *testing.T) {
	var w view.Watch
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		entry thread.Entry
		want  view.LiveState // a second later
		step  string
	}{
		{signal("running", "thread.status_changed", 0, `,"status":"running"`), view.Working, ""},
		{signal("setup.0", "setup.agent", 10, `,"name":"install pi"`), view.Working, "install pi"},
		{signal("started", "dispatch.session_started", 20, ""), view.Working, ""},
		{signal("beat.1", "dispatch.heartbeat", 25, `,"nextMs":5000,"uptimeMs":4000`), view.Working, ""},
		{signal("waiting.0", "dispatch.pi_waiting", 26, `,"pending":1`), view.Working, ""},
		{signal("waiting.1", "dispatch.pi_waiting", 27, `,"pending":0`), view.Waiting, ""},
		{thread.Entry{
			ID: "w", At: "2026-01-01T12:00:28.000Z",
			Payload: []byte(`{"type":"pi.session","kind":"custom","session":{"id":"s","index":1}}`),
		}, view.Waiting, ""},
		{signal("beat.2", "dispatch.heartbeat", 29, `,"nextMs":60000,"uptimeMs":8000`), view.Waiting, ""},
		{thread.Entry{
			ID: "x", At: "2026-01-01T12:00:30.000Z",
			Payload: []byte(`{"type":"pi.assistant","session":{"id":"s","index":1}}`),
		}, view.Working, ""},
		{signal("end.0", "thread.status_changed", 31, `,"status":"completed"`), view.Ended, ""},
	} {
		w.Add(tt.entry)
		at := tt.entry.Received()
		if got := w.Pulse().At(at.Add(time.Second)).State; got != tt.want || w.Step() != tt.step {
			t.Errorf("%s: %s %q, want %s %q", tt.entry.ID, got, w.Step(), tt.want, tt.step)
		}
	}
	s := view.PulseOf(thread.Summary{
		Status: "running", LastEntryAt: "2026-01-01T12:00:00.000Z", NextMs: 5000, Waiting: true,
	})
	if want := (view.Pulse{Status: "running", Last: noon, Next: 5 * time.Second, Waiting: true}); s != want {
		t.Errorf("got %+v", s)
	}
}
