package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
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
// its last turn's verdict. One agent is in each third case, TestFullLiveRun has the rest.
func TestLiveRun(t *testing.T) { liveRun(t, every(6)) }

func TestFullLiveRun(t *testing.T) { liveRun(t, but(every(6))) }

func liveRun(t *testing.T, in part) {
	names := harness.Names()
	for row, tt := range slices.Concat(liveTurns, liveEnds, liveInputs) {
		for column, name := range names {
			if !in(row, column, len(names)) || tt.only != nil && !slices.Contains(tt.only, name) {
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

// liveEnds are how a live run ends.
var liveEnds = []liveCase{
	{"a failed turn, then a good one", nil, func(t *testing.T, l *live) {
		l.model.More(model.Reply{Status: 400, Message: "no such thing", Times: -1})
		l.begin()
		l.turn(1, "failed", "r1.prompt")
		l.model.Drop()
		l.model.More(fine)
		second := l.say("try it again")
		l.turn(2, "completed", second)
		l.finish("completed", 0)
		l.check("r1.prompt", second)
	}},
	{"a failed turn at the end", nil, func(t *testing.T, l *live) {
		l.model.More(say("Hello."))
		l.begin()
		l.turn(1, "completed", "r1.prompt")
		l.model.More(model.Reply{Status: 400, Message: "no such thing", Times: -1})
		second := l.say("and now this")
		l.turn(2, "failed", second)
		l.finish("failed", 1)
		l.check("r1.prompt", second)
		if cause := l.end().Cause; cause.ErrorClass != "provider_error" ||
			!strings.Contains(cause.Message, "no such thing") {
			t.Errorf("the cause is %+v", cause)
		}
	}},
	{"what is queued is done first", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		second, third := l.say("said in mid-tool"), l.sayAs(thread.DeliverFollowUp, "said for after the turn")
		l.post(l.endRequested())
		g.open()
		l.ended("completed", 0)
		l.check("r1.prompt", second, third)
	}},
	{"idle for too long", nil, func(t *testing.T, l *live) {
		l.args = append(l.args, "--idle", "1s")
		l.model.More(fine)
		l.begin()
		l.ended("completed", 0)
		if n := len(l.turns()); n != 1 {
			t.Errorf("%d turns", n)
		}
		l.check("r1.prompt")
	}},
	{"TERM while it waits", nil, func(t *testing.T, l *live) {
		l.model.More(fine)
		l.begin()
		l.waits(1)
		if err := l.r.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		l.ended("completed", 0)
		l.check("r1.prompt")
	}},
	{"TERM in mid-tool", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		l.has("r1.prompt")
		if err := l.r.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		l.status(l.r)
		if got := l.end().Status; got != thread.StatusCancelled {
			t.Errorf("the run is %s", got)
		}
		l.check("r1.prompt")
	}},
	{"cancelled in mid-tool, with a chat for after it", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		l.has("r1.prompt")
		l.sayAs(thread.DeliverFollowUp, "this waits for the next run")
		l.arbe("cancel", l.thread)
		l.status(l.r)
		if got := l.end().Status; got != thread.StatusCancelled {
			t.Errorf("the run is %s", got)
		}
		l.check("r1.prompt")
	}},
	{"KILL of the agent in mid-tool", nil, func(t *testing.T, l *live) {
		g := l.gate()
		l.model.More(g.reply, fine)
		l.begin()
		g.begun()
		l.has("r1.prompt")
		if err := syscall.Kill(agentPID(t, l.scene), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l.status(l.r)
		if e := l.end(); e.Status != thread.StatusFailed || e.Cause.ErrorClass != "killed" {
			t.Errorf("the run is %+v", e)
		}
		l.check("r1.prompt")
	}},
	{"KILL of the runner: the agent's input ends", nil, func(t *testing.T, l *live) {
		l.model.More(fine)
		l.begin()
		l.waits(1)
		k := l.known("r1")
		for _, pid := range runnerPIDs(l.r.Process.Pid) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		l.status(l.r)
		l.until("the agent is gone", func() bool { return syscall.Kill(k.AgentPID, 0) != nil })
		if out, err := l.box("recover"); err != nil {
			t.Fatalf("recover: %v\n%s", err, out)
		}
		if got := l.end().Status; got != thread.StatusCompleted {
			t.Errorf("the run is %s", got)
		}
		l.check("r1.prompt")
	}},
}

// A version that can't be spoken to is refused, and so is a terminal.
func TestLiveRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t, pi078, fine)
	s.args = append(s.args, "--live")
	r := s.start()
	if got := s.status(r); got != 69 || !strings.Contains(r.stderr.String(), "0.78.0 can't be used live") {
		t.Errorf("exit status %d", got)
	}
	if e := s.end(); e.Status != thread.StatusFailed || e.Cause.ErrorClass != "spawn" ||
		!strings.Contains(e.Cause.Message, "0.87.1") {
		t.Errorf("the run is %+v", e)
	}
	if len(s.model.Requests()) > 0 {
		t.Error("the model was asked")
	}
	s = newScene(t, "0.87.1", fine)
	s.args = append(s.args, "--live", "--pty")
	if got := s.status(s.start()); got != 64 {
		t.Errorf("exit status %d", got)
	}
}

// Live runs and others resume each other, in the box and rebuilt, and with another agent. One pair runs,
// TestFullLiveResume has the rest.
func TestLiveResume(t *testing.T) { liveResume(t, first) }

func TestFullLiveResume(t *testing.T) { liveResume(t, but(first)) }

func liveResume(t *testing.T, in part) {
	names := harness.Names()
	for row, from := range names {
		for column, to := range names {
			if !in(row, column, len(names)) {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				l := newLive(t, from, say("This is said in r1."), say("And this."))
				l.begin()
				l.waits(1)
				l.say("the second-word")
				l.waits(2)
				l.finish("completed", 0)
				told := []string{"the task that stands first", "This is said in r1.", "the second-word", "And this."}
				live := l.args
				notLive := func(a string) bool { return a == "--live" || a == "--idle" || a == "1s" }
				l.args = append(slices.DeleteFunc(slices.Clone(live), notLive), "--resume")
				l.say("said between the runs")
				l.onFrom("r2", "continue", append(told, "said between the runs")...)
				told = append(told, "said between the runs", "go on with r2", "This is said in r2.")
				l.args = append(slices.Clone(live), "--idle", "1s", "--resume")
				between := l.say("said between these")
				l.model.More(say("I know."))
				l.onFrom("r3", "continue", append(told, "said between these")...)
				// codex drops the reply to what came before.
				told = append(told, "said between these", "go on with r3", "This is said in r3.")

				versions := others(t)
				versions["pi"] = "0.87.1"
				n := l.nextOf(to, versions[to], "r4")
				n.args = append(n.args, "--live", "--idle", "1s")
				n.onFrom("r4", "hydrate", told...)
				told = append(told, "go on with r4", "This is said in r4.")
				n.args = slices.DeleteFunc(n.args, notLive)
				n.onFrom("r5", "continue", told...)
				l.once()
				if !slices.Contains(l.named(), between) {
					t.Error("a chat was not delivered")
				}
			})
		}
	}
}
