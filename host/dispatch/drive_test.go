package dispatch_test

import (
	"fmt"
	"testing"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/thread"
)

// status is a signal of a run.
func status(run, id, status string) line {
	return line{run + "." + id, "", thread.StatusChanged{
		Signal: thread.Signal{Type: thread.TypeStatus, RunID: run, Harness: "pi"}, Status: status,
	}}
}

func runs(run string) line { return status(run, "running", thread.StatusRunning) }

func begun(run string) line {
	return line{run + ".started", "", thread.Started{
		Signal: thread.Signal{Type: thread.TypeStarted, RunID: run, Harness: "pi"}, Live: true,
	}}
}

func ended(run, how string) line { return status(run, "end.0", how) }

// has is a line of a session that has a chat.
func has(chat string) line {
	return line{"pi:s:" + chat, "", thread.Line{
		Type: "pi.session", Kind: thread.KindPrompt, Chat: chat, Session: &thread.SessionRef{ID: "s"},
	}}
}

// forDriver is a chat of ann's that piet takes by a run.
func forDriver(id string) []line {
	return []line{chat(id, "ann", "go on"), decided(id, 0, react(piet, thread.ReasonDriver))}
}

// A chat on a driven thread waits for one run, while none is open.
func TestDriven(t *testing.T) {
	t.Parallel()
	mine, other := dispatch.RunOf("t1", "m1"), "r0"
	with := func(lines ...any) (all []line) {
		for _, l := range lines {
			if many, is := l.([]line); is {
				all = append(all, many...)
			} else {
				all = append(all, l.(line))
			}
		}
		return all
	}
	m1, m2 := forDriver("m1"), forDriver("m2")
	for name, tt := range map[string]struct {
		lines []line
		at    int // seconds
		want  string
	}{
		"a chat":              {m1, 2, "resume m1 of ann"},
		"before the decision": {m1[:1], 2, "decide m1"},
		"two":                 {with(m1, m2), 4, "resume m1 of ann, resume m2 of ann"},
		"of a bot": {
			[]line{chat("m1", alma, "go on"), decided("m1", 1, react(piet, thread.ReasonDriver))}, 2, "",
		},
		"without a text": {
			[]line{chat("m1", "ann", " "), decided("m1", 0, react(piet, thread.ReasonDriver))}, 2, "",
		},
		"that nobody takes": {[]line{m1[0], decided("m1", 0)}, 2, ""},
		"beside a mention": {
			[]line{m1[0], decided("m1", 0, react(piet, thread.ReasonDriver), react(gus, thread.ReasonMention))},
			2,
			"start " + thread.ReactionID("t1", gus, 0) + " m1 mention, resume m1 of ann",
		},
		"while a run is open":     {with(runs(other), begun(other), m1), 3, ""},
		"while a run is launched": {with(runs(other), m1), 3, ""},
		"after that run":          {with(runs(other), m1, ended(other, "failed")), 4, "resume m1 of ann"},
		"that run had it":         {with(runs(other), m1, has("m1"), ended(other, "failed")), 5, ""},
		"that run had it before":  {with(runs(other), m1[0], has("m1"), m1[1], ended(other, "failed")), 5, ""},
		"its run is launched":     {with(m1, runs(mine)), 3, "resume m1 of ann, from 62"},
		"its run is launched, and another has had it": {
			with(m1, runs(mine), has("m1")), 4, "resume m1 of ann, from 63",
		},
		"its run is open, and another has had it": {with(m1, runs(mine), has("m1"), begun(mine)), 90, ""},
		"its run is open":                         {with(m1, runs(mine), begun(mine)), 90, ""},
		"its run has it":                          {with(m1, runs(mine), begun(mine), has("m1")), 90, ""},
		"its run has ended without it":            {with(m1, runs(mine), ended(mine, "failed")), 90, ""},
		"its run was cancelled":                   {with(m1, runs(mine), ended(mine, "cancelled")), 90, ""},
		"its run is lost":                         {with(m1, runs(mine), status(mine, "orphan.0", "failed")), 90, ""},
		"the next one, and it is open":            {with(m1, runs(mine), begun(mine), m2), 90, ""},
		"the next one, and it has both":           {with(m1, m2, runs(mine), has("m1"), has("m2"), ended(mine, "completed")), 9, ""},
		"the next one, and it has ended": {
			with(m1, m2, runs(mine), ended(mine, "failed")), 9, "resume m2 of ann",
		},
		"the next one, while it is launched": {with(m1, m2, runs(mine)), 9, "resume m1 of ann, from 64"},
		"it was refused": {
			with(m1, line{other + ".refused.0", "", thread.ChatRefused{
				Signal: thread.Signal{Type: thread.TypeRefused, RunID: other, Harness: "pi"}, Chat: "m1",
			}}), 9, "",
		},
		"another mirror's reply has it": {with(m1, line{"a", "", map[string]string{"type": "pi.assistant"}}), 9, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := open(stateOf(tt.lines...), after(tt.at)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A run's id is its thread's and its chat's.
func TestRunOf(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 4 {
		run := dispatch.RunOf(fmt.Sprint("t", i/2), fmt.Sprint("m", i%2))
		if seen[run] || !thread.ValidRun(run) {
			t.Errorf("%s: known %v", run, seen[run])
		}
		seen[run] = true
	}
}
