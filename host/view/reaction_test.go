package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/test/reaction"
	"arbe.0sk.ar/runner/thread"
)

// at is when the entries of reactions are written.
var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func piet() *reaction.Reaction {
	return &reaction.Reaction{Thread: "t1", Bot: "piet", Chats: []string{"a"}, At: at, Took: 12 * time.Second}
}

// listBots returns items in short, with what they show of bots.
func listBots(items []view.Item) []string {
	all := list(items)
	for n, i := range items {
		if i.IsBot() {
			all[n] += " by " + i.Author
		}
		if r := i.Reaction; r != nil && r.Reply {
			all[n] += ": " + r.Figures()
		}
		if i.From != "" {
			all[n] += " from " + i.From
		}
	}
	return all
}

// An answer is the bot's reply, with what it called before, and its chat is delivered. Of another end one line has the
// reason in words. Nothing else is shown of a reaction.
func TestReactions(t *testing.T) {
	asked := line("a", 1, `{"type":"chat","text":"@piet how long do the tests take?"}`)
	skip := func(bot, reason string) thread.Choice {
		return thread.Choice{AgentID: bot, Decision: thread.DecisionSkip, Reason: reason}
	}
	ended := func(outcome, class, message string) []thread.Entry {
		r := piet()
		return []thread.Entry{
			r.Claim(0), r.Delta(0, 0, 0, 0, "I will"), r.Round(0, "I run it.", "make"), r.End(outcome, class, message),
		}
	}
	x := piet().ID()
	started := []string{x + ".0 text I run it. by piet", x + ".0/1 call make unanswered by piet"}
	answer, alma := piet(), piet()
	alma.Bot = "alma"
	for _, tt := range []struct {
		name    string
		entries []thread.Entry
		want    []string
	}{
		{
			"an answer with a call, in which a run ends and another bot has a call of the same id",
			append([]thread.Entry{
				asked, reaction.Decided("a", at, thread.Choice{AgentID: "piet", Decision: "react", Reason: "mention"}),
				answer.Claim(0), answer.Delta(0, 0, 0, 0, "I"), answer.Round(0, "I run it.", "time make test", "pwd"),
				alma.Claim(0), alma.Round(0, "Me too.", "ls"), status("r1.end.0", `"status":"completed"`),
				answer.Result(0, 1, "/w", true), answer.Result(0, 0, "real 3m51s", false), answer.Claim(1),
				answer.Delta(1, 1, 0, 0, "3 min"),
			}, answer.Reply(1, "3 min 51 s.")...),
			[]string{
				"a chat @piet how long do the tests take? delivered",
				x + ".0 text I run it. by piet", x + ".0/1 call time make test done real 3m51s 0s by piet",
				x + ".0/2 call pwd failed /w 0s by piet",
				alma.ID() + ".0 text Me too. by alma", alma.ID() + ".0/1 call ls running by alma",
				"r1.end.0 verdict completed", x + ".1 text 3 min 51 s. by piet: 2 calls · 12s",
			},
		},
		{
			"no key", ended(thread.ReactionFailed, "denied", "the house's key ANTHROPIC_API_KEY was refused"),
			append(started, x+".end notice piet did not answer: the house's key ANTHROPIC_API_KEY was refused by piet"),
		},
		{
			"an end that has a class alone", ended(thread.ReactionFailed, "crashed", ""),
			append(started, x+".end notice piet did not answer: its hosts died again and again by piet"),
		},
		{
			"no money", ended(thread.ReactionRefused, "budget", "today's budget of the house is used up"),
			append(started, x+".end notice piet did not answer: today's budget of the house is used up by piet"),
		},
		{
			"stopped", append(ended(thread.ReactionCancelled, "", ""), line("s", 1,
				`{"type":"signal.dispatch.reaction_cancel","reaction":"x","reason":"wrong question"}`)),
			append(started, x+".end notice piet was stopped by piet",
				"s notice stop of a reply requested: wrong question"),
		},
		{
			"declined",
			[]thread.Entry{piet().Claim(0), piet().End(thread.ReactionDeclined, "", "")},
			[]string{x + ".end end  by piet"},
		},
		{
			"bots that were not asked",
			[]thread.Entry{
				reaction.Decided("a", at, skip("alma", "depth"), skip("bert", "cooldown"), skip("carl", "cap")),
			},
			[]string{
				thread.DecidedID("a") + " notice alma was not asked: a chain of 8 replies",
				thread.DecidedID("a") + "/1 notice carl was not asked: enough replies of bots until a person writes",
			},
		},
		{
			"a chat from another thread",
			[]thread.Entry{line("x_a-0-0", 1, `{"type":"chat","text":"Look.","via":{"threadId":"t2","reaction":"x_a"}}`)},
			[]string{"x_a-0-0 chat Look. not delivered yet by  from t2"},
		},
	} {
		if d := gocmp.Diff(tt.want, listBots(build(tt.entries))); d != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, d)
		}
		for cut := range tt.entries {
			got := view.Join(build(tt.entries[:cut]), build(tt.entries[cut:]))
			if d := gocmp.Diff(tt.want, listBots(got)); d != "" {
				t.Errorf("%s, cut at %d: -want +got:\n%s", tt.name, cut, d)
			}
		}
	}
}

// What a reply took has its cost: ? where the price is not known, and nothing for what no host has counted.
func TestFigures(t *testing.T) {
	for _, tt := range []struct{ end, want string }{
		{`"calls":3,"durationMs":12345`, "3 calls · 12s"},
		{`"calls":3,"durationMs":12345,"usage":{"totalTokens":9},"cost":0.0041`, "3 calls · 12s · $0.0041"},
		{`"calls":1,"durationMs":9876,"usage":{"totalTokens":9}`, "1 call · 9.9s · ?"},
		{`"calls":1,"durationMs":9876,"usage":{"totalTokens":9},"cost":0`, "1 call · 9.9s"},
		{`"calls":0,"durationMs":9876,"usage":{"totalTokens":9},"cost":1.5`, "$1.50"},
		{`"calls":0,"durationMs":9876,"usage":{"totalTokens":9}`, ""},
		{`"calls":0,"durationMs":9876`, ""},
	} {
		r := piet()
		end := r.End(thread.ReactionAnswered, "", "")
		end.Payload = []byte(`{"type":"signal.dispatch.reaction_finished","outcome":"answered","chats":["a"],` +
			`"rounds":1,"reaction":"` + r.ID() + `",` + tt.end + `}`)
		items := build([]thread.Entry{r.Claim(0), r.Round(0, "well"), end})
		if got := view.Join(nil, items)[0].Reaction.Figures(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.end, got, tt.want)
		}
	}
}

// Of a reaction that has not ended a Builder has the text of the present round, by its newest holder.
func TestAnswering(t *testing.T) {
	r := piet()
	ambient := piet()
	ambient.Bot, ambient.Reason = "alma", thread.ReasonAmbient
	var b view.Builder
	for _, step := range []struct {
		name  string
		entry thread.Entry
		want  string
	}{
		{"a claim", r.Claim(0), "piet: []"},
		{"a text begins", r.Delta(0, 0, 0, 0, "Ich w"), "piet: Ich w []"},
		{"it goes on", r.Delta(0, 0, 1, 5, "äre "), "piet: Ich wäre  []"},
		{"a character is one, whatever its bytes", r.Delta(0, 0, 2, 9, "da"), "piet: Ich wäre da []"},
		{"a delta is missing", r.Delta(0, 0, 4, 15, "dort"), "piet: Ich wäre da…dort []"},
		{"an older one comes late", r.Delta(0, 0, 3, 11, "oder"), "piet: Ich wäre da…dort []"},
		{"a tool", r.Delta(0, 0, 5, 19, "", "run_command"), "piet: Ich wäre da…dort [run_command]"},
		{"the host tries again", r.Delta(0, 0, 6, 0, "I am"), "piet: I am []"},
		{"one that may not answer at all", ambient.Claim(0), "piet: I am []"},
		{"nor by another host", ambient.Claim(1), "piet: I am []"},
		{"another host has it", r.Claim(1), "piet: I am []"},
		{"and begins anew", r.Delta(0, 1, 0, 0, "I was"), "piet: I was []"},
		{"the first one wakes up", r.Delta(0, 0, 7, 4, " here"), "piet: I was []"},
		{"a round", r.Round(0, "I was there", "ls"), "piet: []"},
		{"its delta comes late", r.Delta(0, 1, 1, 5, " there"), "piet: []"},
		{"a result", r.Result(0, 0, "x", false), "piet: []"},
		{"the next round", r.Delta(1, 1, 2, 0, "So"), "piet: So []"},
		{"it does answer", ambient.Delta(0, 1, 0, 0, "Me"), "piet: So []; alma: Me []"},
		{"the reply", r.Round(1, "So it is."), "piet: []; alma: Me []"},
		{"the end", r.End(thread.ReactionAnswered, "", ""), "alma: Me []"},
		{"an id of another form", line("x_a.0.b.d.0", 1, `{"type":"signal.dispatch.delta","text":"x"}`), "alma: Me []"},
	} {
		b.Add(step.entry)
		var all []string
		for _, a := range b.Answering() {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %s %v", a.Bot, a.Text, a.Tools)))
		}
		if got := strings.ReplaceAll(strings.Join(all, "; "), ":  [", ": ["); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	for n := range 1000 {
		r := &reaction.Reaction{Thread: "t1", Bot: fmt.Sprint(n)}
		b.Add(r.Delta(0, 0, 0, 0, strings.Repeat("ü", 70_000)))
	}
	bytes := 0
	for _, a := range b.Answering() {
		bytes += len(a.Text)
	}
	if most := 100 * 64 << 10; bytes > most {
		t.Errorf("%d bytes of texts that come are kept, want %d at most", bytes, most)
	}
}

// That bots have replied enough stands there once, until a person writes.
func TestCapOnce(t *testing.T) {
	capped := func(trigger string) thread.Entry {
		return reaction.Decided(trigger, at,
			thread.Choice{AgentID: "piet", Decision: thread.DecisionSkip, Reason: thread.ReasonCap},
			thread.Choice{AgentID: "alma", Decision: thread.DecisionSkip, Reason: thread.ReasonCap})
	}
	var b view.Builder
	var got []string
	for _, e := range []thread.Entry{
		capped("a"), capped("b"), line("m", 1, `{"type":"chat","text":"go on"}`), capped("c"), capped("d"),
	} {
		for _, c := range b.Add(e) {
			if n := c.Item.Notice; n != nil {
				got = append(got, n.Bot+" "+n.Text)
			}
		}
	}
	const want = "piet was not asked: enough replies of bots until a person writes"
	if !slices.Equal(got, []string{want, want}) {
		t.Errorf("%q", got)
	}
}

// On a thread without a run nothing waits for an agent. With its first run the chats that no bot has answered do, and
// are changed, so that a painter can show it.
func TestUndelivered(t *testing.T) {
	var b view.Builder
	for _, e := range []thread.Entry{
		line("a", 1, `{"type":"chat","text":"@piet go"}`),
		line("x_b-0-0", 1, `{"type":"chat","text":"Thank you.","via":{"threadId":"t2","reaction":"x_b"}}`),
		line("c.end", 1, `{"type":"signal.thread.child_finished","runId":"r0","harness":"pi","childThreadId":"c"}`),
		line("c.result", 1, `{"type":"chat","text":"Done.","quiet":true}`),
	} {
		b.Add(e)
	}
	if n := b.Undelivered(); n != 0 {
		t.Errorf("%d chats wait on a thread that bots alone answer on", n)
	}
	for _, e := range piet().Reply(0, "I go.") { // a is answered
		b.Add(e)
	}
	changes := b.Add(line("r1.started", 2, `{"type":"signal.dispatch.session_started","runId":"r1","harness":"pi"}`))
	var ids []string
	for _, c := range changes {
		if c.Replaces && c.Item.Input.Waits() {
			ids = append(ids, c.Item.ID)
		}
	}
	if n := b.Undelivered(); n != 2 || !slices.Equal(ids, []string{"x_b-0-0", "c.result"}) {
		t.Errorf("%d chats wait for the run; changed: %v", n, ids)
	}
	for _, e := range []string{
		`{"type":"pi.assistant","message":{"content":"Yes."}}`, `{"type":"signal.thread.pi_failed","runId":"r1"}`,
	} {
		b := view.Builder{}
		b.Add(line("a", 1, `{"type":"chat","text":"one"}`))
		b.Add(line("r1.end.0", 1, e))
		b.Add(line("b", 1, `{"type":"chat","text":"two"}`))
		if b.Undelivered() == 0 {
			t.Errorf("no chat waits behind %s", e)
		}
	}
}

// A task is open from its announcement to its end. A call has the id of its thread unless the task was refused.
func TestTasks(t *testing.T) {
	var b view.Builder
	var l view.List
	r := piet()
	task := thread.CallKey(r.ID(), 0, 1)
	spawn := func(id string) thread.Entry { return thread.Spawn(id, "piet", "piet") }
	ended := thread.NewEntry("end", "piet", thread.ChildFinished{
		Signal: thread.Signal{Type: thread.TypeChildFinished}, ChildThreadID: "person", Status: thread.StatusCompleted,
	})
	for _, e := range []thread.Entry{
		spawn("person"), r.Calling(0, "I do.", "delegate_task", "task", "one", "two"), spawn(task), spawn(task),
		r.Result(0, 0, "refused", true), r.Result(0, 1, "under way", false), ended,
	} {
		for _, c := range b.Add(e) {
			l.Change(c)
		}
	}
	if got := b.Tasks(); !slices.Equal(got, []string{task}) {
		t.Errorf("open: %v", got)
	}
	var got []string
	for _, i := range l.Items {
		if i.Call != nil {
			got = append(got, i.Call.Task())
		}
	}
	if !slices.Equal(got, []string{"", task}) {
		t.Errorf("tasks of the calls: %q", got)
	}
	for _, round := range []string{"r", "x_a.0", r.ID() + ".0.0", r.ID() + ".end"} { // another writer's
		e := r.Calling(0, "I do.", "delegate_task", "task", "one")
		e.ID = round
		for _, i := range view.Items(e, nil) {
			if i.Call != nil && i.Call.Child != "" {
				t.Errorf("%s: a task %s", round, i.Call.Child)
			}
		}
	}
}
