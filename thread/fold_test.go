package thread_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/thread"
)

// sig is an entry with a signal.
func sig(id, payload string) thread.Entry {
	return thread.Entry{
		ID:      id,
		TS:      "2026-01-01T00:00:00.000Z",
		At:      "2026-01-01T00:00:01.000Z",
		Payload: []byte(payload),
	}
}

func status(run, suffix, word string) thread.Entry {
	return sig(
		run+"."+suffix,
		fmt.Sprintf(`{"type":"signal.thread.status_changed","runId":%q,"harness":"pi","status":%q}`, run, word),
	)
}

func failed(run, suffix, class string) thread.Entry {
	return sig(
		run+"."+suffix,
		fmt.Sprintf(`{"type":"signal.thread.pi_failed","runId":%q,"harness":"pi","errorClass":%q}`, run, class),
	)
}

func orphaned(run, suffix, reason string) thread.Entry {
	return sig(
		run+"."+suffix,
		fmt.Sprintf(
			`{"type":"signal.thread.pi_session_orphaned","runId":%q,"harness":"pi","reason":%q}`,
			run,
			reason,
		),
	)
}

func beat(run string, n int) thread.Entry {
	return sig(
		fmt.Sprintf("%s.beat.%d", run, n),
		fmt.Sprintf(`{"type":"signal.dispatch.heartbeat","runId":%q,"harness":"pi","beat":%d}`, run, n),
	)
}

func TestFold(t *testing.T) {
	chat := sig("c1", `{"type":"chat","text":"hi"}`)
	cancel := sig("x1", `{"type":"signal.dispatch.cancel_requested","reason":"enough","runId":"r2"}`)
	child := sig(
		"x2",
		`{"type":"signal.thread.child_finished","childThreadId":"c","status":"completed","runId":"r9"}`,
	)
	anon := func(id, word string) thread.Entry {
		return sig(id, `{"type":"signal.thread.status_changed","status":"`+word+`"}`)
	}
	for _, tt := range []struct {
		name    string
		entries []thread.Entry
		want    string // the status, and each run's
	}{
		{"nothing", nil, "idle"},
		{"a chat is no run", []thread.Entry{chat}, "idle"},
		{"a cancel is no run", []thread.Entry{cancel}, "idle"},
		{"another thread's end is no run", []thread.Entry{child}, "idle"},
		{"running", []thread.Entry{chat, status("r1", "running", "running")}, "running r1=running"},
		{"completed", []thread.Entry{status("r1", "running", "running"), status("r1", "end.0", "completed")}, "completed r1=completed"},
		{"cancelled", []thread.Entry{status("r1", "running", "running"), status("r1", "end.0", "cancelled")}, "cancelled r1=cancelled"},
		{"failed", []thread.Entry{status("r1", "running", "running"), failed("r1", "end.0", "oom"), status("r1", "end.1", "failed")}, "failed r1=failed"},
		{"half of a pair is enough", []thread.Entry{status("r1", "running", "running"), failed("r1", "end.0", "oom")}, "failed r1=failed"},
		{"a launch that failed", []thread.Entry{status("r1", "running", "running"), failed("r1", "orphan.0", "launch")}, "failed r1=failed?"},
		{"later entries do not reopen it", []thread.Entry{status("r1", "end.0", "completed"), beat("r1", 9), status("r1", "running", "running"), failed("r1", "end.0", "x")}, "completed r1=completed"},
		{"orphaned by the host", []thread.Entry{beat("r1", 1), orphaned("r1", "orphan.0", "silent"), status("r1", "orphan.1", "failed")}, "failed r1=failed?orphaned"},
		{"the runner's word replaces the host's", []thread.Entry{beat("r1", 1), orphaned("r1", "orphan.0", "silent"), status("r1", "orphan.1", "failed"), status("r1", "end.0", "completed")}, "completed r1=completed"},
		{"the host's comes too late", []thread.Entry{beat("r1", 1), status("r1", "end.0", "completed"), orphaned("r1", "orphan.0", "silent"), status("r1", "orphan.1", "failed")}, "completed r1=completed"},
		{"orphaned by the runner is for good", []thread.Entry{orphaned("r1", "end.0", "no_output"), status("r1", "end.1", "failed"), orphaned("r1", "orphan.0", "silent")}, "failed r1=failedorphaned"},
		{"the run whose first signal is the latest", []thread.Entry{status("r1", "running", "running"), status("r2", "running", "running"), status("r2", "end.0", "completed"), beat("r1", 1)}, "completed r1=running r2=completed"},
		{"a second run", []thread.Entry{status("r1", "running", "running"), status("r1", "end.0", "completed"), status("r2", "running", "running")}, "running r1=completed r2=running"},
		{"no run ids", []thread.Entry{anon("a", "running"), anon("b", "completed")}, "completed =completed"},
		{"no run ids, twice", []thread.Entry{anon("a", "running"), anon("b", "failed"), anon("c", "running")}, "running =failed =running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f thread.Fold
			for _, e := range tt.entries {
				f.Add(e)
			}
			if r, found := f.Run("none"); found {
				t.Errorf("Run of an id that no run has: %+v", r)
			}
			got := f.Status()
			for _, r := range f.Runs() {
				if same, found := f.Run(r.ID); !found || r.ID != "" && same != r {
					t.Errorf("Run(%q) = %+v, %v, want %+v", r.ID, same, found, r)
				}
				got += " " + r.ID + "=" + r.Status
				if r.Provisional {
					got += "?"
				}
				if r.Orphaned != nil {
					got += "orphaned"
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// The totals and the cause come from different entries of the pair.
func TestFoldDetails(t *testing.T) {
	var f thread.Fold
	f.Add(failed("r1", "end.0", "killed"))
	f.Add(
		sig(
			"r1.end.1",
			`{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"failed","exitCode":null,"signal":"SIGKILL","lines":7}`,
		),
	)
	r, ok := f.Latest()
	if !ok || r.Cause == nil || r.Cause.ErrorClass != "killed" || r.Totals == nil || r.Totals.Lines != 7 ||
		*r.Totals.ExitSignal != "SIGKILL" ||
		r.Harness != "pi" {
		t.Errorf("got %+v %+v %+v", r, r.Cause, r.Totals)
	}
	if got := thread.Stamp(r.LastSignal); got != "2026-01-01T00:00:01.000Z" {
		t.Errorf("last signal by the wrong clock: %s", got)
	}
}

// What a host has posted of a run's box stands, whatever the run's writer posts: signals that have one place are
// believed there alone.
func TestFoldBelieves(t *testing.T) {
	signal := func(id, typ, more string) thread.Entry {
		return sig(id, `{"type":"signal.dispatch.`+typ+`","runId":"r1","harness":"pi"`+more+`}`)
	}
	in := func(ref string) string { return `,"sandbox":{"provider":"cloud","ref":"` + ref + `"}` }
	want := func(r thread.Run, host, runner, box string) {
		t.Helper()
		ref := func(s *thread.Sandbox) string {
			if s == nil {
				return ""
			}
			return s.Ref
		}
		said := ""
		if r.Started != nil {
			said = ref(r.Started.Sandbox)
		}
		if ref(r.Sandbox) != host || said != runner || ref(r.Box()) != box {
			t.Errorf("got %q, %q and %q, want %q, %q and %q",
				ref(r.Sandbox), said, ref(r.Box()), host, runner, box)
		}
	}
	launched := []thread.Entry{
		status("r1", "running", "running"), signal("r1.sandbox", "sandbox", in("own")),
		signal("r1.started", "session_started", in("own")+`,"pid":7`),
	}
	forged := []thread.Entry{
		signal("r1.again", "session_started", in("other")+`,"pid":8`),
		signal("pi:s:1", "session_started", in("other")),
		signal("r1.started.1", "session_started", in("other")),
		signal("r2.started", "session_started", in("other")),
		signal("box", "sandbox", in("other")),
		signal("r1.sandbox.0", "sandbox", in("other")),
		signal("r1.sandbox.0123456789ab", "sandbox", in("other")), // after the start
		signal("p", "push", `,"pushed":true`), signal("r2.push.0", "push", `,"pushed":true`),
		signal("s", "sync", `,"copied":1`), signal("k", "sandbox_kept", in("other")),
		sig("u", `{"type":"signal.setup.command","runId":"r1","harness":"pi","name":"x"}`),
	}
	var f thread.Fold
	for _, e := range append(launched, forged...) {
		f.Add(e)
	}
	r, _ := f.Run("r1")
	want(r, "own", "own", "own")
	if r.Started.PID != 7 || r.Push != nil || r.Sync != nil || r.Kept != nil || r.Setups != 0 || f.Len() != 1 {
		t.Errorf("got %+v, of %d runs", r, f.Len())
	}

	f = thread.Fold{} // before it starts, a launch that continues has another box
	for _, e := range append(launched[:2:2], signal("r1.sandbox.0123456789ab", "sandbox", in("next")), forged[0]) {
		f.Add(e)
	}
	r, _ = f.Run("r1")
	want(r, "next", "", "next")

	f = thread.Fold{} // the runner of a launched run names another box than its host
	for _, e := range append(launched[:2:2], signal("r1.started", "session_started", in("other"))) {
		f.Add(e)
	}
	r, _ = f.Run("r1")
	want(r, "own", "other", "own")

	f = thread.Fold{} // a runner that was started by hand
	f.Add(signal("r1.started", "session_started", in("other")))
	r, _ = f.Run("r1")
	want(r, "", "other", "other")
}

// A live run waits from its signal on until its next line or its end. The signal is a sign of its life, and begins no
// run.
func TestFoldWaiting(t *testing.T) {
	var f thread.Fold
	at := func(second int, e thread.Entry) thread.Entry {
		e.At = fmt.Sprintf("2026-01-01T00:00:%02d.000Z", second)
		return e
	}
	waiting := func(run string) thread.Entry {
		return sig(run+".waiting.0", `{"type":"signal.dispatch.pi_waiting","runId":"`+run+`","harness":"pi"}`)
	}
	for i, step := range []struct {
		entry thread.Entry
		want  bool
	}{
		{status("r1", "running", "running"), false},
		{waiting("r2"), false},
		{waiting("r1"), true},
		{beat("r1", 1), true},
		{sig("c", `{"type":"chat","text":"hi"}`), true},
		{sig("r1.refused.0", `{"type":"signal.dispatch.chat_refused","runId":"r1","chat":"c"}`), true},
		{sig("x_1.0", `{"type":"pi.assistant","reaction":{"id":"x_1"}}`), true},
		{sig("pi:s:1", `{"type":"pi.session","kind":"prompt"}`), false},
		{waiting("r1"), true},
		{status("r1", "end.0", "completed"), false},
		{waiting("r1"), false},
	} {
		f.Add(at(i, step.entry))
		r, _ := f.Latest()
		if r.ID != "r1" || r.Waiting != step.want {
			t.Errorf("after %d, %s: run %s waits %v", i, step.entry.ID, r.ID, r.Waiting)
		}
		if step.entry.ID == "x_1.0" && r.LastEntry.Second() == i {
			t.Errorf("a bot's reply is a sign of a run's life")
		}
		if step.entry.ID == "r1.refused.0" && r.LastEntry.Second() != i {
			t.Errorf("%s is no sign of life: last entry at %v", step.entry.ID, r.LastEntry)
		}
	}
}

// A fold that is written and read again at any entry is the same, and continues the same. The time without an at is the
// writer's, in any zone.
func TestFoldState(t *testing.T) {
	anon := func(id, word string) thread.Entry {
		return sig(id, `{"type":"signal.thread.status_changed","status":"`+word+`"}`)
	}
	elsewhere := beat("r3", 2)
	elsewhere.At, elsewhere.TS = "", "2026-01-01T02:00:00.123456+02:00"
	entries := []thread.Entry{
		sig("r1.prompt", `{"type":"chat","text":"go","runId":"r1"}`),
		status("r1", "running", "running"),
		sig("r1.sandbox", `{"type":"signal.dispatch.sandbox","runId":"r1","sandbox":{"provider":"local","ref":"b<1>","ephemeral":true},
			"after":{"push":{"repo":"o/r","branch":"b","pr":true},"sync":{"delete":true,"failed":false},"keep":true},"parent":{"threadId":"p","authorId":"a"}}`),
		sig("r1.setup.0", `{"type":"signal.setup.repository","runId":"r1","name":"clone","durationMs":3}`),
		sig("r1.started", `{"type":"signal.dispatch.session_started","runId":"r1","pid":7,"startTicks":9,"cwd":"/w","resume":"none"}`),
		sig("pi:s:1", `{"type":"pi.assistant","model":"m","message":{}}`),
		beat("r1", 1),
		orphaned("r1", "orphan.0", "silent"), status("r1", "orphan.1", "failed"),
		failed("r1", "end.0", "oom"),
		sig("r1.end.1", `{"type":"signal.thread.status_changed","runId":"r1","status":"failed","exitCode":null,"signal":"SIGKILL","lines":7,"usage":{"input":1.5}}`),
		sig("r1.push.0", `{"type":"signal.dispatch.push","runId":"r1","pushed":true,"branch":"b"}`),
		sig("r1.sync.0", `{"type":"signal.dispatch.sync","runId":"r1","copied":1,"conflicts":["a<b"]}`),
		sig("r1.kept.0", `{"type":"signal.dispatch.sandbox_kept","runId":"r1","reason":"work"}`),
		anon("a", "running"), anon("b", "failed"), anon("c", "running"),
		elsewhere, status("r3", "end.0", "completed"), anon("d", "completed"),
	}
	var whole, resumed thread.Fold
	for i, e := range entries {
		whole.Add(e)
		resumed.Add(e)
		state := thread.Marshal(resumed)
		var next thread.Fold
		if err := json.Unmarshal(state, &next); err != nil {
			t.Fatalf("after %s: %v", e.ID, err)
		}
		resumed = next
		if d := cmp.Diff(whole.Runs(), resumed.Runs()); d != "" || whole.Status() != resumed.Status() {
			t.Fatalf("after entry %d, %s: %s", i, e.ID, d)
		}
	}
	if len(whole.Runs()) != 4 {
		t.Errorf("got %d runs", len(whole.Runs()))
	}
	for _, bad := range []string{"", "{}", "[null]", `[{"lastSignal":7}]`} {
		if err := json.Unmarshal([]byte(bad), &resumed); err == nil {
			t.Errorf("%q is a state", bad)
		}
	}
}
