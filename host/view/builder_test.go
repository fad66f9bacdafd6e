package view_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// list returns items in short.
func list(items []view.Item) []string {
	var all []string
	for _, i := range items {
		s := i.ID + " " + string(i.Kind)
		switch {
		case i.Call != nil:
			s += " " + i.Call.Main + " " + string(i.Call.State)
			if r := i.Call.Result; r != nil {
				s += " " + r.Text + " " + r.Duration.String()
			}
		case i.Result != nil:
			s += " " + i.Result.Text
		case i.Verdict != nil:
			s += " " + strings.Join(append([]string{i.Verdict.Head()}, i.Verdict.Figures()...), ",")
			if i.Verdict.Replaced {
				s += " replaced"
			}
		default:
			s += " " + i.Sentence() + i.Text + strings.Join(i.Chats, " ")
		}
		if in := i.Input; in != nil {
			s += " " + cmp.Or(in.Sentence(), string(in.Delivery))
		}
		if i.Subagent != nil {
			s += " of " + i.Subagent.ID
		}
		all = append(all, s)
	}
	return all
}

func line(id string, second int, payload string) thread.Entry {
	return thread.Entry{
		ID: id, TS: fmt.Sprintf("2026-01-01T12:00:%02d.000Z", second), Payload: json.RawMessage(payload),
	}
}

func call(id, command string) string {
	return `{"type":"toolCall","id":"` + id + `","name":"Bash","arguments":{"command":"` + command + `"}}`
}

func reply(id string, second int, blocks ...string) thread.Entry {
	return line(id, second, `{"type":"claude.assistant","model":"m","message":{"content":[`+
		strings.Join(blocks, ",")+`]},"session":{"id":"s","index":1}}`)
}

func result(id string, second int, call, text string) thread.Entry {
	return line(id, second, `{"type":"claude.tool_result","toolCallId":"`+call+`","toolName":"Bash","isError":`+
		fmt.Sprint(text == "bad")+`,"message":{"content":"`+text+`"},"session":{"id":"s","index":2}}`)
}

func status(id string, more string) thread.Entry {
	return line(id, 50, `{"type":"signal.thread.status_changed","runId":"r1","harness":"pi",`+more+`}`)
}

func TestBuilder(t *testing.T) {
	failed := line("r1.end.0", 50,
		`{"type":"signal.thread.pi_failed","runId":"r1","errorClass":"pi_exit","message":"boom","stderrTail":"x"}`)
	orphaned := line("r1.orphan.0", 50, `{"type":"signal.thread.pi_session_orphaned","runId":"r1","reason":"silent"}`)
	const totals = `"status":"failed","exitCode":7,"signal":null,"durationMs":500,"lines":1`
	for _, tt := range []struct {
		name    string
		entries []thread.Entry
		want    []string
	}{
		{
			"results out of order",
			[]thread.Entry{
				reply("a", 1, `{"type":"text","text":"two"}`, call("1", "x")), reply("b", 1, call("2", "y")),
				result("c", 2, "2", "bad"), result("d", 9, "1", "good"),
			},
			[]string{"a text two", "a/1 call x done good 8s", "b call y failed bad 1s"},
		},
		{
			"a result without its call, and an id that comes again",
			[]thread.Entry{
				result("a", 1, "1", "lost"), reply("b", 2, call("1", "x")), result("c", 3, "1", "one"),
				reply("d", 4, call("1", "y")), result("e", 5, "1", "two"),
			},
			[]string{"a result lost", "b call x done one 1s", "d call y done two 1s"},
		},
		{
			"a run ends in a call, and its verdict is two entries",
			[]thread.Entry{reply("a", 1, call("1", "x")), failed, status("r1.end.1", totals)},
			[]string{"a call x unanswered", "r1.end.0 verdict failed: boom,pi_exit,exit 7,500ms,1 line"},
		},
		{
			"half a verdict",
			[]thread.Entry{status("r1.end.1", totals)},
			[]string{"r1.end.1 verdict failed,exit 7,500ms,1 line"},
		},
		{
			"a provisional verdict is replaced, with results that came late",
			[]thread.Entry{
				reply("a", 1, call("1", "x")), orphaned, status("r1.orphan.1", totals), result("b", 3, "1", "late"),
				status("r1.end.0", `"status":"completed","exitCode":0,"signal":null,"durationMs":9000,"lines":2`),
			},
			[]string{
				"a call x done late 2s",
				"r1.orphan.0 verdict failed: the runner has posted nothing for too long,silent,exit 7,500ms," +
					"1 line replaced",
				"r1.end.0 verdict completed,exit 0,9s,2 lines",
			},
		},
		{
			"a host's verdict comes too late",
			[]thread.Entry{status("r1.end.0", `"status":"completed"`), orphaned, status("r1.orphan.1", totals)},
			[]string{"r1.end.0 verdict completed"},
		},
		{
			"runs of two harnesses",
			[]thread.Entry{
				line("r1.started", 1, `{"type":"signal.dispatch.session_started","runId":"r1","harness":"pi",`+
					`"agentVersion":"1","cwd":"/w","resume":"none"}`),
				line("r2.started", 1, `{"type":"signal.dispatch.session_started","runId":"r2","harness":"codex",`+
					`"cwd":"/w","resume":"hydrate","sandbox":{"provider":"local","ref":"b"}}`),
				line("r3.started", 1, `{"type":"signal.dispatch.session_started","runId":"r3","harness":"codex",`+
					`"cwd":"/w","resume":"continue"}`),
			},
			[]string{
				"r1.started rule pi 1 starts in /w (run r1)",
				"r2.started rule codex continues in /w on local:b (run r2), resumed (rebuilt), after pi",
				"r3.started rule codex continues in /w (run r3), resumed in place",
			},
		},
		{
			"errors, summaries, stubs, requests",
			[]thread.Entry{
				line("a", 1, `{"type":"pi.assistant","stopReason":"error","message":{"content":"Oh","errorMessage":"Oh no"}}`),
				line("b", 1, `{"type":"pi.session","kind":"compaction","line":{"summary":"s","tokensBefore":19500}}`),
				line("b2", 1, `{"type":"claude.session","kind":"user","line":{"type":"user","isCompactSummary":true,`+
					`"message":{"role":"user","content":"what was before"}}}`),
				line("b3", 1, `{"type":"claude.session","kind":"user","line":{"type":"user","isMeta":true,`+
					`"message":{"role":"user","content":"not shown, about \"isCompactSummary\""}}}`),
				line("c", 1, `{"type":"pi.session","kind":"stub","bytes":2048,"reason":"too large"}`),
				line("d", 1, `{"type":"signal.dispatch.cancel_requested","reason":"enough"}`),
				line("e", 1, `{"type":"signal.dispatch.chat_refused","runId":"r1","chat":"x","reason":"no image"}`),
				line("f", 1, `{"type":"signal.unknown.thing","runId":"r1"}`),
				line("r1.asked.0", 1, `{"type":"signal.dispatch.agent_asked","runId":"r1","kind":"confirm",`+
					`"text":"Go on?","outcome":"cancelled"}`),
				line("g", 1, `{"type":"pi.session","kind":"model_change","line":{}}`),
			},
			[]string{
				"a stop error: Oh no", "b rule the conversation was summarised, at 19500 tokens",
				"b2 rule the summary",
				"c notice a line of 2 KiB was refused by the server: too large", "d notice cancel requested: enough",
				"e notice chat x was refused: no image",
				"r1.asked.0 notice the agent asked (confirm), cancelled: Go on?",
			},
		},
		{
			"a subagent",
			[]thread.Entry{
				line("a", 1, `{"type":"claude.session","kind":"user","subagentOf":"s","session":{"id":"agent-1","index":0},`+
					`"line":{"type":"user","isSidechain":true,"message":{"role":"user","content":"the task"}}}`),
				line("b", 1, `{"type":"claude.assistant","subagentOf":"s","session":{"id":"agent-1","index":1},`+
					`"message":{"content":"done"}}`),
				line("c", 1, `{"type":"claude.assistant","subagentOf":"s","session":{"id":"s","index":1},`+
					`"message":{"content":"among"},"line":{"agentId":"2"}}`),
			},
			[]string{"a chat the task of agent-1", "b text done of agent-1", "c text among of 2"},
		},
		{
			"chats for an agent",
			[]thread.Entry{
				line("r1.prompt", 1, `{"type":"chat","text":"the task","runId":"r1"}`),
				line("a", 1, `{"type":"chat","text":"one"}`),
				line("b", 1, `{"type":"chat","text":"two","deliver":"followUp"}`),
				line("c", 1, `{"type":"chat","text":"three","deliver":"interrupt"}`),
				line("d", 1, `{"type":"chat","text":"four"}`),
				line("e", 1, `{"type":"chat","text":" "}`),
				line("s:1", 2, `{"type":"pi.session","kind":"prompt","chat":"r1.prompt","session":{"id":"s"},"line":{}}`),
				line("s:2", 2, `{"type":"pi.session","kind":"prompt","chats":["a","r1.prompt"],"session":{"id":"s"}}`),
				line("r1.refused.0", 2,
					`{"type":"signal.dispatch.chat_refused","runId":"r1","chat":"d","reason":"too long"}`),
			},
			[]string{
				"r1.prompt chat the task", "a chat one delivered", "b chat two not delivered yet; for after the turn",
				"c chat three not delivered yet", "d chat four refused: too long", "e chat  ",
				"r1.refused.0 notice chat d was refused: too long",
			},
		},
		{
			"a delivery whose chat is in an earlier piece",
			[]thread.Entry{
				line("a", 1, `{"type":"chat","text":"one"}`),
				line("s:2", 2, `{"type":"pi.session","kind":"prompt","chats":["x","a","y"],"session":{"id":"s"}}`),
			},
			[]string{"a chat one delivered", "s:2 delivery x y"},
		},
		{
			"a turn of a mirror that names no chats",
			[]thread.Entry{
				line("a", 1, `{"type":"chat","text":"one"}`), line("b", 1, `{"type":"chat","text":"two"}`),
				line("s:2", 2, `{"type":"pi.assistant","message":{"content":"Yes."}}`),
				line("c", 3, `{"type":"chat","text":"three"}`),
			},
			[]string{"a chat one delivered", "b chat two delivered", "s:2 text Yes.", "c chat three not delivered yet"},
		},
		{
			"a command in the box",
			[]thread.Entry{
				line("x.exec.0", 1, `{"type":"signal.exec.started","command":"ls"}`),
				line("x.exec.1", 1, `{"type":"signal.exec.output","text":"a"}`),
				line("x.exec.2", 3, `{"type":"signal.exec.finished","exitCode":2}`),
			},
			[]string{"x.exec.0 call ls failed  2s", "x.exec.1 result a"},
		},
		{
			"a command in the box, over the start and the end of a run",
			[]thread.Entry{
				line("x.exec.0", 1, `{"type":"signal.exec.started","command":"ls"}`),
				line("r.started", 1, `{"type":"signal.dispatch.session_started","runId":"r","harness":"pi"}`),
				line("r.end.0", 2, `{"type":"signal.thread.status_changed","runId":"r","harness":"pi","status":"completed"}`),
				line("x.exec.1", 3, `{"type":"signal.exec.finished","exitCode":null,"signal":"SIGKILL","timedOut":true}`),
			},
			[]string{
				"x.exec.0 call ls failed ended after its time; SIGKILL 2s", "r.started rule pi starts in  (run r)",
				"r.end.0 verdict completed",
			},
		},
	} {
		if d := gocmp.Diff(tt.want, list(build(tt.entries))); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
	}
}

// A Builder keeps a bounded number of calls that have no result.
func TestBoundedMemory(t *testing.T) {
	var b view.Builder
	text := strings.Repeat("x", 1<<20)
	for i := range 7 {
		b.Add(reply(fmt.Sprint("a", i), 1, call(fmt.Sprint(i), text)))
	}
	if n := len(b.Running()); n == 0 || n > 5 {
		t.Errorf("%d calls of a megabyte are kept", n)
	}
	for i := range 1500 {
		b.Add(reply(fmt.Sprint("b", i), 1, call(fmt.Sprint(i), "x")))
	}
	if n := len(b.Running()); n != 1000 {
		t.Errorf("%d calls are kept", n)
	}
}

// Whatever an entry has, it gives items with ids of its own, and pieces join to the whole.
func FuzzItems(f *testing.F) {
	for _, all := range threads(f) {
		for _, e := range all {
			f.Add([]byte(e.Payload))
		}
	}
	for _, seed := range []string{
		`{"type":"pi.assistant","message":{"content":[1,null,{"type":"toolCall","arguments":[]},{}]}}`,
		`{"type":"codex.tool_result","message":{"content":{"type":"text"},"details":7},"isError":3}`,
		`{"type":"signal.thread.pi_failed","runId":"r","message":{}}`, `{`, ``, `[]`, `{"type":`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		all := []thread.Entry{
			reply("before", 1, call("c", "x")),
			{ID: "fuzzed", Payload: payload},
			result("after", 2, "c", "y"),
			{ID: "again", Payload: payload},
		}
		var w view.Watch
		seen := map[string]bool{}
		for _, e := range all {
			w.Add(e)
			for _, i := range view.Items(e, nil) {
				if seen[i.ID] || !strings.HasPrefix(i.ID, e.ID) {
					t.Fatalf("id %q", i.ID)
				}
				seen[i.ID] = true
				_, _ = i.Sentence(), i.Diff()
				for _, m := range i.Images {
					view.ImageData(e, m.N)
				}
			}
		}
		want := build(all)
		for cut := range all {
			got := view.Join(build(all[:cut]), build(all[cut:]))
			if d := gocmp.Diff(list(want), list(got)); d != "" {
				t.Fatalf("cut at %d: -want +got:\n%s", cut, d)
			}
		}
	})
}
