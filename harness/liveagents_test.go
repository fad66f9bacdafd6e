package harness_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/outcome"
)

// each runs a test with each of the real agents.
func each(t *testing.T, f func(t *testing.T, name string)) {
	for _, name := range harness.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, name)
		})
	}
}

var fine = model.Reply{Text: "Fine.", Times: -1}

// slowly is a reply that takes 50 ms a word.
func slowly(words int) model.Reply {
	return model.Reply{Text: strings.Repeat("word ", words), Pace: model.Duration(50 * time.Millisecond)}
}

// A chat to an idle agent begins a turn; one while a tool works is taken in with its result; an interrupt ends the
// turn, and its chat comes before the one that was queued. With the end of its input an idle agent exits with 0.
func TestLive(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		steered, tool := newGate(t, name)
		interrupted, endless := newGate(t, name)
		d := newHome(t, name, model.Reply{Text: "Hello."}, tool, model.Reply{Text: "Both."}, endless, fine).
			start(t, harness.Session{})
		d.say("chat one")
		d.idle()
		d.barrier()

		d.say("chat two")
		d.until("the tool", steered.begun)
		if m := d.put("chat three, in mid-tool"); d.state.Queued(m.ID) != (name != "pi") {
			t.Errorf("queued: %+v", d.state)
		}
		steered.open(t)
		d.idle()

		d.say("chat four")
		d.until("the tool", interrupted.begun)
		d.put("chat five, queued")
		dropped := d.interrupt()
		if want := map[string]int{"codex": 1, "claude-code": 1}[name]; len(dropped) != want {
			t.Errorf("dropped %+v, want %d", dropped, want)
		}
		d.put("chat six, overtaking")
		for _, m := range dropped {
			d.until("taken in", func() bool { return len(d.sent) == 0 })
			d.put(m.Text)
		}
		d.idle()
		if code := d.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		last := []string{"chat six, overtaking", "chat five, queued"}
		if name == "pi" { // it takes what is queued into the turn that ends
			slices.Reverse(last)
		}
		d.wantTaken(append([]string{"chat one", "chat two", "chat three, in mid-tool", "chat four"}, last...)...)
	})
}

// A message that codex gets for a turn that has ended begins no other one: it may be put again.
func TestLiveCodexTooLate(t *testing.T) {
	g, tool := newGate(t, "codex")
	d := newHome(t, "codex", tool, fine).start(t, harness.Session{})
	d.say("chat one")
	d.until("the tool", g.begun)
	busy := d.state
	g.open(t)
	d.idle()
	late := harness.Message{ID: d.id(), Text: "chat two, too late"}
	d.write(d.live.Put(busy, late))
	d.until("the refusal", func() bool {
		return slices.ContainsFunc(d.events, func(e harness.Event) bool { return e.Refused == late.ID && e.Again })
	})
	d.say("chat three")
	d.idle()
	if code := d.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	d.wantTaken("chat one", "chat three")
}

// Texts arrive as they are, and ten at once arrive in order.
func TestFullLiveTexts(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := newHome(t, name, slowly(20), fine).start(t, harness.Session{})
		d.say("begin")
		d.requests(1)
		want := []string{"begin"}
		for _, n := range []string{"A", "B", "C", "D", "E", "F", "G", "H", "I", "J"} {
			d.put("at-once-" + n)
			want = append(want, "at-once-"+n)
		}
		d.idle()
		for _, text := range []string{
			"several\nlines\r\n\twith a tab", "a separator \u2028 inside", strings.Repeat("long ", 20<<10) + "end",
			"-x", "@nothing", `quotes " and \ and </b>`, "/nosuch command",
		} {
			d.say(text)
			want = append(want, text)
			d.idle()
		}
		if code := d.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		if strings.Join(d.taken, "|") != strings.Join(want, "|") {
			t.Errorf("taken in %.300q", d.taken)
		}
	})
}

// What is a command in an agent's own interface is on record as a chat, once, whatever the agent makes of it: pi and
// codex give it to the model, claude-code obeys some and refuses others. One that it gets in mid-turn it takes in after
// the turn, and after what is behind it. /clear and its likes are in package e2e: they begin another session.
func TestFullLiveCommands(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		g, tool := newGate(t, name)
		d := newHome(t, name, tool, fine).start(t, harness.Session{})
		d.put("begin")
		d.until("the tool", g.begun)
		d.put("/nosuch command")
		d.put("said behind it")
		g.open(t)
		d.idle()
		want := []string{"begin", "/nosuch command", "said behind it"}
		if d.live.Apart != nil && d.live.Apart(" /nosuch command") {
			want[1], want[2] = want[2], want[1]
		}
		for _, text := range []string{
			"/resume", "/continue", "/fork", "/clone", "/tree", "/branch x", "/rename x", "/rewind", "/undo",
			"/exit", "/quit", "/context", "/model", "/login", "/tasks", "/compact",
		} {
			d.say(text)
			d.idle()
			want = append(want, text)
		}
		if code := d.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		if !slices.Equal(d.taken, want) {
			t.Errorf("taken in %q, want %q", d.taken, want)
		}
	})
}

// A chat while the model streams: pi and claude-code take it in after the reply, codex at once.
func TestFullLiveStream(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := newHome(t, name, slowly(30), fine).start(t, harness.Session{})
		d.say("chat one")
		d.requests(1)
		d.say("chat two, in mid-stream")
		d.idle()
		d.end()
		d.wantTaken("chat one", "chat two, in mid-stream")
	})
}

// An interrupt of a streaming reply ends the turn as aborted.
func TestFullLiveInterruptStream(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := newHome(t, name, slowly(1000), fine).start(t, harness.Session{})
		d.say("chat one")
		d.requests(1)
		d.interrupt()
		if last := d.marks[len(d.marks)-1]; last != "aborted" {
			t.Errorf("marks %q", d.marks)
		}
		d.say("chat two")
		d.idle()
		if code := d.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		d.wantTaken("chat one", "chat two")
	})
}

// A failed turn leaves the agent alive; the next one is good.
func TestFullLiveFailure(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := newHome(t, name, model.Reply{Status: 400, Message: "no such thing", Times: -1}).start(t, harness.Session{})
		d.say("chat one")
		d.idle()
		d.model.Drop()
		d.model.More(fine)
		d.say("chat two")
		d.idle()
		if got := strings.Join(d.marks, " "); got != "error stop" {
			t.Errorf("turns ended with %q", got)
		}
		if code := d.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		d.wantTaken("chat one", "chat two")
	})
}

// The end of the input in mid-turn: pi and codex abort the turn, claude-code ends it and takes in what is queued. The
// exit status is 0 in all.
func TestFullLiveEOF(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		g, tool := newGate(t, name)
		h := newHome(t, name, tool, fine)
		d := h.start(t, harness.Session{})
		d.say("chat one")
		d.until("the tool", g.begun)
		d.put("chat two, queued")
		if name == "claude-code" {
			g.open(t)
		}
		if code := d.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		want := []string{"chat one"}
		if name == "claude-code" {
			want = append(want, "chat two, queued")
		}
		d.wantTaken(want...)

		// Another live run resumes the session.
		again := h.start(t, harness.Session{Path: d.session.path, ID: sessionID(d)})
		again.say("chat three")
		again.idle()
		again.end()
		again.wantTaken("chat three")
		all := d.model.Requests()
		if last := string(all[len(all)-1].Body); !strings.Contains(last, "chat one") {
			t.Errorf("the resumed session lacks what was before")
		}
	})
}

// The signal in mid-turn: the agent records the interruption if it can, and exits. claude-code 2.1.329 can exit before
// that on a busy machine. The verdict is the same either way.
func TestFullLiveStop(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		g, tool := newGate(t, name)
		d := newHome(t, name, tool, fine).start(t, harness.Session{})
		d.say("chat one")
		d.until("the tool", g.begun)
		if err := d.cmd.Process.Signal(d.live.Stop); err != nil {
			t.Fatal(err)
		}
		_ = d.cmd.Wait() // the exit status counts, not the error
		d.follow()
		code := d.cmd.ProcessState.ExitCode()
		if want := map[string]int{"pi": 143}[name]; code != want {
			t.Errorf("exit status %d, want %d", code, want)
		}
		b, err := os.ReadFile(d.session.path)
		if err != nil {
			t.Fatal(err)
		}
		var tally harness.Tally
		for line := range bytes.Lines(b) {
			tally.Add(d.spec.Dialect.Decode(line))
		}
		want := map[string][]outcome.State{
			"pi":          {outcome.Unfinished}, // it records nothing; its exit status has it
			"codex":       {outcome.Aborted},
			"claude-code": {outcome.Aborted, outcome.Unfinished},
		}[name]
		turn := tally.Turn()
		if !slices.Contains(want, turn.State) {
			t.Errorf("the session ends with %v, want one of %v", turn.State, want)
		}
		f := outcome.Facts{Turn: turn, Exit: outcome.ExitCode(code), Action: outcome.ActionCancel}
		if v := outcome.Decide(f); v.Outcome != outcome.Cancelled {
			t.Errorf("the verdict is %q, want cancelled", v.Outcome)
		}
	})
}

func sessionID(d *talk) string {
	if d.state.Session.ID != "" {
		return d.state.Session.ID
	}
	return d.task.ID
}

// A process that takes over writes barriers; after the last one's answer a message that was read is accepted. The first
// barrier is read together with the message, by an agent that starts, is idle or has a tool at work.
func TestFullLiveBarrier(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		g, tool := newGate(t, name)
		d := newHome(t, name, model.Reply{Text: "Hello."}, model.Reply{Text: "Hello."}, tool, fine).
			start(t, harness.Session{})
		put := func(text string) {
			d.until("ready", func() bool { return d.live.Ready(d.state) })
			m := harness.Message{ID: harness.MessageID(text+d.task.ID, 0), Text: text}
			d.sent = append(d.sent, m)
			id := d.id()
			d.write2(d.live.Put(d.state, m), d.live.Barrier(d.state, id))
			d.until("the first barrier", func() bool { return d.answered[id] })
			for range d.live.Rounds - 1 {
				id := d.id()
				d.write(d.live.Barrier(d.state, id))
				d.until("a barrier", func() bool { return d.answered[id] })
			}
			if !d.accepted[m.ID] {
				t.Errorf("%s: no acceptance behind the barrier", text)
			}
		}
		put("chat at the start")
		d.idle()
		put("chat to an idle agent")
		d.idle()
		d.say("chat with a tool")
		d.until("the tool", g.begun)
		put("chat in mid-tool")
		g.open(t)
		d.idle()
		d.end()
		d.wantTaken("chat at the start", "chat to an idle agent", "chat with a tool", "chat in mid-tool")
	})
}

// A chat while the agent waits to try a failed request again is taken in once.
func TestFullLiveRetry(t *testing.T) {
	each(t, func(t *testing.T, name string) {
		d := newHome(t, name, model.Reply{Status: 500, Message: "broken", Times: 1}, fine).start(t, harness.Session{})
		d.say("chat one")
		d.requests(1)
		// codex retries at once.
		d.until("the wait", func() bool { return d.state.Wait == harness.Retry || name == "codex" })
		d.put("chat two, in the wait")
		d.idle()
		if got := strings.Join(d.marks, " "); strings.Contains(got, "error") {
			t.Errorf("turns ended with %q", got)
		}
		if code := d.end(); code != 0 {
			t.Errorf("exit status %d", code)
		}
		d.wantTaken("chat one", "chat two, in the wait")
	})
}

// pi gets no chat while it summarizes the conversation; it gets it after.
func TestFullLivePiCompaction(t *testing.T) {
	long := model.Reply{Text: strings.Repeat("word ", 40000), InputTokens: 127000}
	summary := model.Reply{Text: "Summary.", When: "summar", Wait: model.Duration(time.Second)}
	d := newHome(t, "pi", model.Reply{Text: "Hello."}, long, summary, fine).start(t, harness.Session{})
	d.say("chat one")
	d.idle()
	d.say("chat two")
	d.until("compaction", func() bool { return d.state.Wait == harness.Compaction })
	if d.live.Ready(d.state) {
		t.Error("ready in a compaction")
	}
	d.say("chat three")
	d.idle()
	if code := d.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if got := strings.Join(d.taken, "|"); got != "chat one|chat two|chat three" {
		t.Error(got)
	}
}

// The others queue a chat in a compaction.
func TestFullLiveCompaction(t *testing.T) {
	for name, args := range map[string][]string{
		"codex": {"-c", "model_auto_compact_token_limit=1000"}, "claude-code": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, tool := newGate(t, name)
			g.open(t)
			tool.InputTokens = 90000
			summary := model.Reply{Text: "Summary.", Wait: model.Duration(time.Second)}
			d := newHome(t, name, tool, summary, fine).start(t, harness.Session{}, args...)
			if name == "codex" {
				d.say("chat one")
			} else {
				d.model.Drop()
				d.model.More(model.Reply{Text: "Hello."}, summary, fine)
				d.say("chat one")
				d.idle()
				d.put("/compact") // on record at its end
			}
			d.until("compaction", func() bool { return d.state.Wait == harness.Compaction })
			d.say("chat two")
			d.idle()
			if code := d.end(); code != 0 {
				t.Errorf("exit status %d", code)
			}
			all := d.model.Requests()
			if last := string(all[len(all)-1].Body); strings.Count(last, "chat two") != 1 {
				t.Errorf("the model has the chat %d times", strings.Count(last, "chat two"))
			}
		})
	}
}

// A permission that the agent asks for, because the box is configured so, is given, and the turn ends well.
func TestFullLivePermissions(t *testing.T) {
	for name, edit := range map[string]*strings.Replacer{
		"codex": strings.NewReplacer(`"approvalPolicy":"never"`, `"approvalPolicy":"untrusted"`),
		"claude-code": strings.NewReplacer(
			"--dangerously-skip-permissions", "--permission-prompt-tool=stdio", // asks on stdout
		),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, tool := newGate(t, name)
			g.open(t)
			d := newHome(t, name, tool, fine).startAs(t, harness.Session{}, edit.Replace)
			d.say("chat one")
			d.idle()
			asked := slices.IndexFunc(d.events, func(h harness.Event) bool { return h.Request != nil })
			if asked < 0 || d.events[asked].Request.Decision != "allowed" || !g.begun() {
				t.Errorf("asked %d, ran %v", asked, g.begun())
			}
			if code := d.end(); code != 0 {
				t.Errorf("exit status %d", code)
			}
		})
	}
}

// Images go to the model, with their text.
func TestFullLiveImages(t *testing.T) {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 3000, 40))); err != nil {
		t.Fatal(err)
	}
	data := base64.StdEncoding.EncodeToString(file.Bytes())
	each(t, func(t *testing.T, name string) {
		d := newHome(t, name, fine).start(t, harness.Session{})
		d.put("chat with an image", harness.Image{MimeType: "image/png", Data: data})
		d.idle()
		d.end()
		d.wantTaken("chat with an image")
		if last := d.model.Requests(); !strings.Contains(string(last[len(last)-1].Body), "iVBORw0KGgo") {
			t.Error("the model has no image")
		}
	})
}

// Background work that ends opens a turn of claude-code's own. It takes in no message.
func TestFullLiveClaudeBackground(t *testing.T) {
	g, tool := newGate(t, "claude-code")
	tool.Tools[0].Arguments["run_in_background"] = true
	d := newHome(t, "claude-code", tool, fine).start(t, harness.Session{})
	d.say("chat one")
	d.idle()
	turns := len(d.marks)
	g.open(t)
	d.until("a turn of its own", func() bool { return len(d.marks) > turns && !d.state.Busy })
	d.say("chat two")
	d.idle()
	d.end()
	d.wantTaken("chat one", "chat two")
}

// A process that takes over writes again what opens codex's session, if it does not see the answer.
func TestFullLiveCodexOpenTwice(t *testing.T) {
	d := newHome(t, "codex", fine).start(t, harness.Session{})
	for _, line := range d.live.Open(harness.Talk{}, d.task, d.dir) {
		d.write(line)
	}
	d.say("chat one")
	d.idle()
	d.barrier()
	if code := d.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	d.wantTaken("chat one")
}

// A dialog of a pi extension does not hang the run.
func TestFullLivePiDialog(t *testing.T) {
	h := newHome(t, "pi", fine)
	ext := filepath.Join(h.dir, "ask.ts")
	write(t, h.dir, map[string]string{"ask.ts": `export default function (pi: any) {
	pi.on("before_agent_start", async (_e: any, ctx: any) => {
		const ok = await ctx.ui.confirm("Go on?", "really");
		const file = await ctx.ui.input("Name");
		require("node:fs").writeFileSync(` + "`${process.cwd()}/answers`" + `, String(ok) + " " + String(file));
	});
	pi.registerCommand("quiet", { description: "no line", handler: async () => {} });
}
`})
	d := h.start(t, harness.Session{}, "-e", ext)
	d.say("chat one")
	d.idle()
	if b, err := os.ReadFile(filepath.Join(h.work, "answers")); err != nil || string(b) != "false undefined" {
		t.Errorf("%q, %v", b, err)
	}
	// An extension's command is accepted and leaves no line.
	m := d.put("/quiet")
	d.barrier()
	if d.follow(); d.state.Busy || len(d.sent) != 1 || d.sent[0].ID != m.ID || !d.live.Handles {
		t.Errorf("%+v %+v", d.state, d.sent)
	}
	d.sent = nil
	// A template's expansion is the message.
	write(t, h.dir, map[string]string{".pi/agent/prompts/greet.md": "Greet $1 well."})
	d.end()
	again := h.start(t, harness.Session{Path: d.session.path, ID: d.task.ID})
	again.say("/greet Ada")
	again.idle()
	again.end()
	all := d.model.Requests()
	if last := string(all[len(all)-1].Body); !strings.Contains(last, "Greet Ada well.") {
		t.Error("the template was not expanded")
	}
}
