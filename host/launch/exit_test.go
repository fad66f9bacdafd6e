package launch_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/thread"
)

func entry(id, payload string) thread.Entry {
	return thread.Entry{ID: id, TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload)}
}

func status(s, more string) string {
	return `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi","status":"` + s + `"` + more + `}`
}

// The exit status is 0 for a completed run only: a run without entries is 1.
func TestExitStatus(t *testing.T) {
	running := entry("r1.running", status("running", ""))
	for _, tt := range []struct {
		name    string
		entries []thread.Entry
		want    int
	}{
		{"nothing was read", nil, 1},
		{"completed", []thread.Entry{running, entry("r1.end.0", status("completed", `,"exitCode":0`))}, 0},
		{"failed", []thread.Entry{running, entry("r1.end.1", status("failed", `,"exitCode":7`))}, 7},
	} {
		var fold thread.Fold
		for _, e := range tt.entries {
			fold.Add(e)
		}
		if got := launch.ExitStatus(&fold, "r1"); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A turn that has the chat ends with its outcome, or the run's. A chat that no turn has is 75.
func TestTurn(t *testing.T) {
	waiting := func(outcome, chats string) thread.Entry {
		return entry("w", `{"type":"signal.dispatch.pi_waiting","runId":"r1","harness":"pi","turn":1,"outcome":"`+outcome+
			`","chats":[`+chats+`]}`)
	}
	delivered := entry("l1", `{"type":"pi.session","kind":"prompt","chat":"c1","line":"{}"}`)
	line := entry("l2", `{"type":"pi.session","kind":"prompt","chat":"c2","line":"{}"}`)
	refused := func(chat string) thread.Entry {
		return entry("x", `{"type":"signal.dispatch.chat_refused","runId":"r1","harness":"pi","chat":"`+chat+
			`","reason":"too long"}`)
	}
	failed := entry("r1.end.1", status("failed", `,"exitCode":7`))
	const early = "run r1 ended before its agent had the chat: the next run with --resume gets it"
	for _, tt := range []struct {
		name    string
		entries []thread.Entry
		want    launch.Turn
	}{
		{"nothing yet", nil, launch.Turn{}},
		{"delivered", []thread.Entry{delivered}, launch.Turn{}},
		{"another chat's turn", []thread.Entry{waiting("completed", `"c0"`)}, launch.Turn{}},
		{"its turn", []thread.Entry{waiting("completed", `"c0","c1"`)}, launch.Turn{Over: true, Outcome: "completed"}},
		{"it failed", []thread.Entry{waiting("failed", `"c1"`)}, launch.Turn{Over: true, Outcome: "failed", Status: 1}},
		{"another chat refused", []thread.Entry{refused("c0")}, launch.Turn{}},
		{"refused", []thread.Entry{refused("c1")}, launch.Turn{Over: true, Status: 75, Why: "the chat was refused: too long"}},
		{"the run ended in it", []thread.Entry{delivered, line, failed}, launch.Turn{Over: true, Outcome: "failed", Status: 7}},
		{"the run ended before", []thread.Entry{failed, delivered}, launch.Turn{Over: true, Status: 75, Why: early}},
	} {
		var got launch.Turn
		got.Add(entry("r1.running", status("running", "")))
		got.Add(waiting("failed", `"c1"`)) // of before, which does not count
		got.Of("c1", "r1")
		for _, e := range tt.entries {
			got.Add(e)
		}
		if got.Over != tt.want.Over || got.Status != tt.want.Status || got.Outcome != tt.want.Outcome ||
			got.Why != tt.want.Why {
			t.Errorf("%s: %v, status %d, %q, %q", tt.name, got.Over, got.Status, got.Outcome, got.Why)
		}
	}
}

// A chat on a driven thread may be had by the run that is launched for it, or by another one before.
func TestTurnToCome(t *testing.T) {
	running := func(run string) thread.Entry {
		return entry(run+".running", `{"type":"signal.thread.status_changed","runId":"`+run+
			`","harness":"pi","status":"running"}`)
	}
	ended := func(run string) thread.Entry {
		return entry(run+".end.0", `{"type":"signal.thread.status_changed","runId":"`+run+
			`","harness":"pi","status":"completed"}`)
	}
	delivered := entry("l1", `{"type":"pi.session","kind":"prompt","chat":"c1","line":"{}"}`)
	refused := entry("r2.orphan.0", `{"type":"signal.thread.pi_failed","runId":"r2","harness":"pi",`+
		`"errorClass":"launch","message":"no such image"}`)
	for _, tt := range []struct {
		name    string
		entries []thread.Entry
		want    launch.Turn
	}{
		{"another run ends before", []thread.Entry{running("r1"), ended("r1")}, launch.Turn{}},
		{
			"another run has it",
			[]thread.Entry{running("r1"), delivered, ended("r1")},
			launch.Turn{Over: true, Outcome: "completed"},
		},
		{"its run is open", []thread.Entry{running("r1"), ended("r1"), running("r2")}, launch.Turn{}},
		{
			"its run has it",
			[]thread.Entry{running("r2"), delivered, ended("r2")},
			launch.Turn{Over: true, Outcome: "completed"},
		},
		{"its launch fails", []thread.Entry{running("r2"), refused}, launch.Turn{
			Over: true, Status: 75, Why: "run r2 was not launched, and its agent has not had the chat: no such image",
		}},
	} {
		var got launch.Turn
		got.Of("c1", "r2")
		for _, e := range tt.entries {
			got.Add(e)
		}
		if got.Over != tt.want.Over || got.Status != tt.want.Status || got.Outcome != tt.want.Outcome ||
			got.Why != tt.want.Why {
			t.Errorf("%s: %v, status %d, %q, %q", tt.name, got.Over, got.Status, got.Outcome, got.Why)
		}
	}
}
