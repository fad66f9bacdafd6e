package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// liveCase is one way to talk to a running agent.
type liveCase struct {
	name string
	only []string // harnesses; nil for all
	play func(t *testing.T, l *live)
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
				tt.play(t, newLive(t, name))
			})
		}
	}
}

// turn checks the signal of a turn: its outcome, and the chats that it took in.
func (l *live) turn(n int, outcome string, chats ...string) {
	l.t.Helper()
	w := l.waits(n)
	if w.Outcome != outcome || !slices.Equal(w.Chats, chats) {
		const format = "turn %d is %s and has\n%s\nwant %s and\n%s"
		l.t.Errorf(format, n, w.Outcome, l.words(w.Chats), outcome, l.words(chats))
	}
	if w.RunID != "r1" || w.Harness != l.agent.Harness || w.Turn < n || w.Pending != 0 {
		l.t.Errorf("the signal of turn %d is %+v", n, w)
	}
}

// liveTurns are what the agent does when a chat comes.
var liveTurns = []liveCase{
	{"idle", nil, func(t *testing.T, l *live) {
		l.model.More(say("The report is written."), say("I have looked."), say("And again."))
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		if got := l.arbe("thread", "status", l.thread); got != thread.StatusRunning {
			t.Errorf("the run that waits is %s", got)
		}
		if started := l.started("r1"); !started.Live || started.Resume != "none" {
			t.Errorf("started as %+v", started)
		}
		second := l.say("look at the second table")
		l.turn(2, "completed", second)
		third := l.say("and at the third")
		l.turn(3, "completed", third)
		l.finish("completed", 0)
		l.check("r1.prompt", second, third)
		if n := len(l.model.Requests()); n != 3 {
			t.Errorf("the model was asked %d times", n)
		}
	}},
	{"in mid-stream", nil, func(t *testing.T, l *live) {
		l.model.More(slowly(30), fine)
		l.begin()
		l.requests(1)
		second := l.say("said in mid-stream")
		l.has(second)
		l.waits(1)
		l.finish("completed", 0)
		l.check("r1.prompt", second)
	}},
	{"in mid-tool", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		second := l.say("said in mid-tool")
		g.open()
		l.has(second)
		l.waits(1)
		l.finish("completed", 0)
		l.check("r1.prompt", second)
	}},
	{"in the wait for a retry", nil, func(t *testing.T, l *live) {
		if err := l.agent.Home(l.dir, l.url, 3000); err != nil {
			t.Fatal(err)
		}
		l.model.More(model.Reply{Status: 500, Message: "not now"}, fine)
		l.begin()
		l.requests(1)
		second := l.say("said before the retry")
		l.has(second)
		l.waits(1)
		l.finish("completed", 0)
		l.check("r1.prompt", second)
	}},
	{"in a compaction", nil, func(t *testing.T, l *live) {
		summary := model.Reply{Text: "Summary.", Wait: model.Duration(1e9)}
		l.unseen["r1.prompt"] = true
		switch l.agent.Harness {
		case "pi":
			summary.When = "summar"
			long := model.Reply{Text: strings.Repeat("word ", 40000), InputTokens: 127000}
			l.model.More(say("Hello."), long, summary, fine)
		case "codex":
			l.args = append(l.args, "--agent-arg=-c", "--agent-arg=model_auto_compact_token_limit=1000")
			tool := calling(l.agent.Harness, "true")
			tool.InputTokens = 90000
			l.model.More(tool, summary, fine)
		default:
			l.model.More(say("Hello."), summary, fine)
		}
		l.begin()
		want := []string{"r1.prompt"}
		if l.agent.Harness != "codex" {
			l.waits(1)
			text := map[string]string{"pi": "make it long", "claude-code": "/compact"}[l.agent.Harness]
			id := l.say(text)
			l.unseen[id] = true
			want = append(want, id)
		}
		l.requests(map[string]int{"pi": 3, "codex": 2, "claude-code": 2}[l.agent.Harness])
		last := l.say("said in the compaction")
		want = append(want, last)
		l.has(last)
		l.until("the last turn", func() bool {
			all := l.turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, last)
		})
		l.finish("completed", 0)
		l.check(want...)
	}},
	{"after the turn, and a steer that comes before it", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		later := l.sayAs(thread.DeliverFollowUp, "said for after the turn")
		steer := l.say("said for now")
		g.open()
		l.has(later)
		l.until("the last turn", func() bool {
			all := l.turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, later)
		})
		l.finish("completed", 0)
		want := []string{"r1.prompt", steer, later}
		l.check(want...)
	}},
	{"an interrupt overtakes", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		l.has("r1.prompt")
		first := l.sayAs(thread.DeliverFollowUp, "said for after the turn")
		at := l.sayAs(thread.DeliverInterrupt, "said at once")
		l.has(first)
		l.until("the last turn", func() bool {
			all := l.turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, first)
		})
		l.finish("completed", 0)
		l.check("r1.prompt", at, first)
	}},
	{"an interrupt of a reply", nil, func(t *testing.T, l *live) {
		l.model.More(slowly(2000), fine)
		l.begin()
		l.requests(1)
		l.has("r1.prompt")
		at := l.sayAs(thread.DeliverInterrupt, "said at once")
		l.has(at)
		l.until("the last turn", func() bool {
			all := l.turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, at) &&
				all[len(all)-1].Outcome == thread.StatusCompleted
		})
		l.finish("completed", 0)
		l.check("r1.prompt", at)
	}},
	{"ten at once", nil, func(t *testing.T, l *live) {
		l.model.More(slowly(20), fine)
		l.begin()
		l.requests(1)
		want := []string{"r1.prompt"}
		var batch []thread.Entry
		for n := range 10 {
			e := l.chat("", fmt.Sprintf("at-once-%c", 'A'+n))
			batch, want = append(batch, e), append(want, e.ID)
		}
		l.post(batch...)
		l.has(want[10])
		l.until("the last turn", func() bool {
			all := l.turns()
			return len(all) > 0 && slices.Contains(all[len(all)-1].Chats, want[10])
		})
		l.finish("completed", 0)
		l.check(want...)
	}},
	{"background work opens a turn", []string{"claude-code"}, func(t *testing.T, l *live) {
		g := l.gate()
		g.reply.Tools[0].Arguments["run_in_background"] = true
		l.model.More(g.reply, fine)
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		g.begun()
		g.open()
		l.turn(2, "completed")
		last := l.say("said after it")
		l.turn(3, "completed", last)
		l.finish("completed", 0)
		l.check("r1.prompt", last)
	}},
}

// liveInputs are the texts of chats.
var liveInputs = []liveCase{
	{"texts", nil, func(t *testing.T, l *live) {
		l.model.More(fine)
		l.begin()
		l.waits(1)
		want := []string{"r1.prompt"}
		for n, text := range []string{
			"several\nlines\n\twith a tab", "a separator \u2028 inside",
			strings.Repeat("long ", 20<<10) + "end", "-x", "@nothing", `quotes " and \ and </b>`, "/nosuch command",
		} {
			want = append(want, l.say(text))
			l.turn(n+2, "completed", want[n+1])
		}
		l.unseen[want[len(want)-1]] = l.agent.Harness == "claude-code"
		l.finish("completed", 0)
		l.check(want...)
	}},
	{"too long", []string{"codex"}, func(t *testing.T, l *live) {
		l.model.More(fine)
		l.begin()
		l.waits(1)
		long := l.say(strings.Repeat("x", 1<<20+1))
		last := l.say("and this one fits")
		l.turn(2, "completed", last)
		l.finish("completed", 0)
		l.check("r1.prompt", last)
		entries := l.entries()
		at := slices.IndexFunc(entries, func(e thread.Entry) bool { return e.ID == "r1.refused.0" })
		if at < 0 || payload[thread.ChatRefused](t, entries[at]).Chat != long {
			t.Error("the chat was not refused")
		}
	}},
	{"dialogs and a command of an extension", []string{"pi"}, func(t *testing.T, l *live) {
		ext := filepath.Join(l.dir, "ask.ts")
		if err := os.WriteFile(ext, []byte(askingExtension), 0o600); err != nil {
			t.Fatal(err)
		}
		l.args = append(l.args, "--agent-arg=-e", "--agent-arg="+ext)
		l.model.More(fine)
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		b, err := os.ReadFile(filepath.Join(l.dir, "work", "answers"))
		if err != nil || string(b) != "false undefined" {
			t.Errorf("the dialogs are answered %q, %v", b, err)
		}
		command := l.say("/quiet")
		l.until("the refusal of the command", func() bool {
			return slices.ContainsFunc(l.entries(), func(e thread.Entry) bool {
				return payload[thread.ChatRefused](t, e).Chat == command && e.ID == "r1.refused.0"
			})
		})
		last := l.say("said after the command")
		l.turn(2, "completed", last)
		l.finish("completed", 0)
		l.check("r1.prompt", last)
		asked := 0
		for _, e := range l.entries() {
			p := payload[thread.Asked](t, e)
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
	{"an extension begins another session", []string{"pi"}, func(t *testing.T, l *live) {
		ext := filepath.Join(l.dir, "fresh.ts")
		if err := os.WriteFile(ext, []byte(freshExtension), 0o600); err != nil {
			t.Fatal(err)
		}
		l.args = append(l.args, "--agent-arg=-e", "--agent-arg="+ext)
		l.model.More(fine)
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		l.say("/fresh")
		last := l.say("said in the new session")
		l.waitsIn("r1", last)
		l.finish("completed", 0)
		if got := l.named(); !slices.Equal(got, []string{"r1.prompt", last}) {
			t.Errorf("delivered:\n%s", l.words(got))
		}
		l.goesOn([]string{"said in the new session"}, "the task that stands first")
	}},
	{"no task", nil, func(t *testing.T, l *live) {
		delete(l.texts, "r1.prompt")
		l.prompt = ""
		l.model.More(fine)
		l.begin()
		l.until("the start", func() bool { return strings.Contains(textOf(l.entries()), "session_started") })
		first := l.say("the first word")
		l.turn(1, "completed", first)
		l.finish("completed", 0)
		l.check(first)
	}},
	{"chats before the run", nil, func(t *testing.T, l *live) {
		l.model.More(fine)
		before := []string{l.say("said long before"), l.say("and a moment before")}
		l.begin()
		l.has("r1.prompt")
		l.waits(1)
		l.finish("completed", 0)
		if first := l.named(); slices.Index(first, before[0]) > slices.Index(first, "r1.prompt") {
			t.Errorf("the task came first:\n%s", l.words(first))
		}
		l.check(append(before, "r1.prompt")...)
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
