package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// liveCase is one way to talk to a running agent.
type liveCase struct {
	name string
	only []string // harnesses; nil for all
	play func(t *testing.T, l *scene.Live)
}

// A chat reaches the running agent once and in order, whatever the agent does, and the run has its turns' signals and
// its last turn's verdict. Each agent runs in the first case, TestFullLiveRun has the rest.
func TestLiveRun(t *testing.T) { liveRun(t, liveTurns[:1]) }

func TestFullLiveRun(t *testing.T) { liveRun(t, slices.Concat(liveTurns[1:], liveEnds, liveInputs)) }

func liveRun(t *testing.T, cases []liveCase) {
	for _, tt := range cases {
		for _, name := range harness.Names() {
			if tt.only != nil && !slices.Contains(tt.only, name) {
				continue
			}
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				tt.play(t, scene.NewLive(t, name))
			})
		}
	}
}

// turn checks the signal of a turn: its outcome, and the chats that it took in.
func turn(l *scene.Live, n int, outcome string, chats ...string) {
	l.T.Helper()
	w := l.Waits(n)
	if w.Outcome != outcome || !slices.Equal(w.Chats, chats) {
		const format = "turn %d is %s and has\n%s\nwant %s and\n%s"
		l.T.Errorf(format, n, w.Outcome, l.Words(w.Chats), outcome, l.Words(chats))
	}
	if w.RunID != "r1" || w.Harness != l.Agent.Harness || w.Turn < n || w.Pending != 0 {
		l.T.Errorf("the signal of turn %d is %+v", n, w)
	}
}

// liveTurns are the cases in which chats come to a live run's agent.
var liveTurns = []liveCase{
	{"idle", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Say("The report is written."), scene.Say("I have looked."), scene.Say("And again."))
		l.Begin()
		turn(l, 1, "completed", "r1.prompt")
		if got := l.Arbe("thread", "status", l.Thread); got != thread.StatusRunning {
			t.Errorf("the run that waits is %s", got)
		}
		if started := l.Started("r1"); !started.Live || started.Resume != "none" {
			t.Errorf("started as %+v", started)
		}
		second := l.Say("look at the second table")
		turn(l, 2, "completed", second)
		third := l.Say("and at the third")
		turn(l, 3, "completed", third)
		l.Finish("completed", 0)
		l.Check("r1.prompt", second, third)
		if n := len(l.Model.Requests()); n != 3 {
			t.Errorf("the model was asked %d times", n)
		}
	}},
	{"in mid-stream", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Slowly(30), scene.Fine)
		l.Begin()
		l.Requests(1)
		second := l.Say("said in mid-stream")
		l.Has(second)
		l.Waits(1)
		l.Finish("completed", 0)
		l.Check("r1.prompt", second)
	}},
	{"in mid-tool", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		second := l.Say("said in mid-tool")
		g.Open()
		l.Has(second)
		l.Waits(1)
		l.Finish("completed", 0)
		l.Check("r1.prompt", second)
	}},
	{"in the wait for a retry", nil, func(t *testing.T, l *scene.Live) {
		if err := l.Agent.Home(l.Dir, l.Url, 3000); err != nil {
			t.Fatal(err)
		}
		l.Model.More(model.Reply{Status: 500, Message: "not now"}, scene.Fine)
		l.Begin()
		l.Requests(1)
		second := l.Say("said before the retry")
		l.Has(second)
		l.Waits(1)
		l.Finish("completed", 0)
		l.Check("r1.prompt", second)
	}},
	{"in a compaction", nil, func(t *testing.T, l *scene.Live) {
		summary := model.Reply{Text: "Summary.", Wait: model.Duration(1e9)}
		l.Unseen["r1.prompt"] = true
		switch l.Agent.Harness {
		case "pi":
			summary.When = "summar"
			long := model.Reply{Text: strings.Repeat("word ", 40000), InputTokens: 127000}
			l.Model.More(scene.Say("Hello."), long, summary, scene.Fine)
		case "codex":
			l.Args = append(l.Args, "--agent-arg=-c", "--agent-arg=model_auto_compact_token_limit=1000")
			tool := scene.Calling(l.Agent.Harness, "true")
			tool.InputTokens = 90000
			l.Model.More(tool, summary, scene.Fine)
		default:
			l.Model.More(scene.Say("Hello."), summary, scene.Fine)
		}
		l.Begin()
		want := []string{"r1.prompt"}
		if l.Agent.Harness != "codex" {
			l.Waits(1)
			text := map[string]string{"pi": "make it long", "claude-code": "/compact"}[l.Agent.Harness]
			id := l.Say(text)
			l.Unseen[id] = true
			want = append(want, id)
		}
		l.Requests(map[string]int{"pi": 3, "codex": 2, "claude-code": 2}[l.Agent.Harness])
		last := l.Say("said in the compaction")
		want = append(want, last)
		l.Has(last)
		l.Until("the last turn", func() bool {
			all := l.Turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, last)
		})
		l.Finish("completed", 0)
		l.Check(want...)
	}},
	{"after the turn, and a steer that comes before it", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		later := l.SayAs(thread.DeliverFollowUp, "said for after the turn")
		steer := l.Say("said for now")
		g.Open()
		l.Has(later)
		l.Until("the last turn", func() bool {
			all := l.Turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, later)
		})
		l.Finish("completed", 0)
		want := []string{"r1.prompt", steer, later}
		l.Check(want...)
	}},
	{"an interrupt overtakes", nil, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		g.Begun()
		l.Has("r1.prompt")
		first := l.SayAs(thread.DeliverFollowUp, "said for after the turn")
		at := l.SayAs(thread.DeliverInterrupt, "said at once")
		l.Has(first)
		l.Until("the last turn", func() bool {
			all := l.Turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, first)
		})
		l.Finish("completed", 0)
		l.Check("r1.prompt", at, first)
	}},
	{"an interrupt of a reply", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Slowly(2000), scene.Fine)
		l.Begin()
		l.Requests(1)
		l.Has("r1.prompt")
		at := l.SayAs(thread.DeliverInterrupt, "said at once")
		l.Has(at)
		l.Until("the last turn", func() bool {
			all := l.Turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, at) &&
				all[len(all)-1].Outcome == thread.StatusCompleted
		})
		l.Finish("completed", 0)
		l.Check("r1.prompt", at)
	}},
	{"ten at once", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Slowly(20), scene.Fine)
		l.Begin()
		l.Requests(1)
		want := []string{"r1.prompt"}
		var batch []thread.Entry
		for n := range 10 {
			e := l.Chat("", fmt.Sprintf("at-once-%c", 'A'+n))
			batch, want = append(batch, e), append(want, e.ID)
		}
		l.Post(batch...)
		l.Has(want[10])
		l.Until("the last turn", func() bool {
			all := l.Turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, want[10])
		})
		l.Finish("completed", 0)
		l.Check(want...)
	}},
	{"background work opens a turn", []string{"claude-code"}, func(t *testing.T, l *scene.Live) {
		g := l.Gate()
		g.Reply.Tools[0].Arguments["run_in_background"] = true
		l.Model.More(g.Reply, scene.Fine)
		l.Begin()
		turn(l, 1, "completed", "r1.prompt")
		g.Begun()
		g.Open()
		turn(l, 2, "completed")
		last := l.Say("said after it")
		turn(l, 3, "completed", last)
		l.Finish("completed", 0)
		l.Check("r1.prompt", last)
	}},
}

// liveInputs are the texts of chats.
var liveInputs = []liveCase{
	{"texts", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Fine)
		l.Begin()
		l.Waits(1)
		want := []string{"r1.prompt"}
		for n, text := range []string{
			"several\nlines\n\twith a tab", "a separator \u2028 inside",
			strings.Repeat("long ", 20<<10) + "end", "-x", "@nothing", `quotes " and \ and </b>`, "/nosuch command",
		} {
			want = append(want, l.Say(text))
			turn(l, n+2, "completed", want[n+1])
		}
		l.Unseen[want[len(want)-1]] = l.Agent.Harness == "claude-code"
		l.Finish("completed", 0)
		l.Check(want...)
	}},
	{"too long", []string{"codex"}, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Fine)
		l.Begin()
		l.Waits(1)
		long := l.Say(strings.Repeat("x", 1<<20+1))
		last := l.Say("and this one fits")
		turn(l, 2, "completed", last)
		l.Finish("completed", 0)
		l.Check("r1.prompt", last)
		entries := l.Entries()
		at := slices.IndexFunc(entries, func(e thread.Entry) bool { return e.ID == "r1.refused.0" })
		if at < 0 || scene.Payload[thread.ChatRefused](t, entries[at]).Chat != long {
			t.Error("the chat was not refused")
		}
	}},
	{"dialogs and a command of an extension", []string{"pi"}, func(t *testing.T, l *scene.Live) {
		ext := filepath.Join(l.Dir, "ask.ts")
		if err := os.WriteFile(ext, []byte(askingExtension), 0o600); err != nil {
			t.Fatal(err)
		}
		l.Args = append(l.Args, "--agent-arg=-e", "--agent-arg="+ext)
		l.Model.More(scene.Fine)
		l.Begin()
		turn(l, 1, "completed", "r1.prompt")
		b, err := os.ReadFile(filepath.Join(l.Dir, "work", "answers"))
		if err != nil || string(b) != "false undefined" {
			t.Errorf("the dialogs are answered %q, %v", b, err)
		}
		command := l.Say("/quiet")
		l.Until("the refusal of the command", func() bool {
			return slices.ContainsFunc(l.Entries(), func(e thread.Entry) bool {
				return scene.Payload[thread.ChatRefused](t, e).Chat == command && e.ID == "r1.refused.0"
			})
		})
		last := l.Say("said after the command")
		turn(l, 2, "completed", last)
		l.Finish("completed", 0)
		l.Check("r1.prompt", last)
		asked := 0
		for _, e := range l.Entries() {
			p := scene.Payload[thread.Asked](t, e)
			if p.Type != thread.TypeAsked {
				continue
			}
			if asked++; p.Outcome != "cancelled" || p.Text == "" {
				t.Errorf("asked %+v", p)
			}
		}
		if asked != 4 { // two in each turn
			t.Errorf("the agent asked %d times", asked)
		}
	}},
	{"an extension begins another session", []string{"pi"}, func(t *testing.T, l *scene.Live) {
		ext := filepath.Join(l.Dir, "fresh.ts")
		if err := os.WriteFile(ext, []byte(freshExtension), 0o600); err != nil {
			t.Fatal(err)
		}
		l.Args = append(l.Args, "--agent-arg=-e", "--agent-arg="+ext)
		l.Model.More(scene.Fine)
		l.Begin()
		turn(l, 1, "completed", "r1.prompt")
		l.Say("/fresh")
		last := l.Say("said in the new session")
		waitsIn(l, "r1", last)
		l.Finish("completed", 0)
		if got := l.Named(); !slices.Equal(got, []string{"r1.prompt", last}) {
			t.Errorf("delivered:\n%s", l.Words(got))
		}
		goesOn(l, []string{"said in the new session"}, "the task that stands first")
	}},
	{"no task", nil, func(t *testing.T, l *scene.Live) {
		delete(l.Texts, "r1.prompt")
		l.Prompt = ""
		l.Model.More(scene.Fine)
		l.Begin()
		l.Until("the start", func() bool { return strings.Contains(scene.TextOf(l.Entries()), "session_started") })
		first := l.Say("the first word")
		turn(l, 1, "completed", first)
		l.Finish("completed", 0)
		l.Check(first)
	}},
	{"chats before the run", nil, func(t *testing.T, l *scene.Live) {
		l.Model.More(scene.Fine)
		before := []string{l.Say("said long before"), l.Say("and a moment before")}
		l.Begin()
		l.Has("r1.prompt")
		l.Waits(1)
		l.Finish("completed", 0)
		if first := l.Named(); slices.Index(first, before[0]) > slices.Index(first, "r1.prompt") {
			t.Errorf("the task came first:\n%s", l.Words(first))
		}
		l.Check(append(before, "r1.prompt")...)
	}},
}

// freshExtension is an extension of pi with a command that begins another session.
const freshExtension = `export default function (pi: any) {
	pi.registerCommand("fresh", { description: "anew", handler: async (_: any, ctx: any) => { await ctx.newSession(); } });
}
`

// askingExtension is an extension of pi that asks a person before each turn, and that has a command without a line.
const askingExtension = `export default function (pi: any) {
	pi.on("before_agent_start", async (_e: any, ctx: any) => {
		const ok = await ctx.ui.confirm("Go on?", "really");
		const file = await ctx.ui.input("Name");
		require("node:fs").writeFileSync(` + "`${process.cwd()}/answers`" + `, String(ok) + " " + String(file));
	});
	pi.registerCommand("quiet", { description: "no line", handler: async () => {} });
}
`
