package dispatch_test

import (
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/internal/test/reaction"
	"arbe.0sk.ar/runner/thread"
)

// A trace ends once each bot that reacts has ended a reaction that has the trigger, and with the decision where none
// reacts.
func TestTrace(t *testing.T) {
	const a, b, c = "bot-a", "bot-b", "bot-c"
	react := func(bot string) thread.Choice {
		return thread.Choice{AgentID: bot, Decision: thread.DecisionReact, Reason: thread.ReasonMention}
	}
	one := &reaction.Reaction{Thread: "t1", Bot: a, Chats: []string{"other", "chat"}}
	before := &reaction.Reaction{Thread: "t1", Bot: b, Chats: []string{"other"}}
	two := &reaction.Reaction{Thread: "t1", Bot: b, N: 1, Chats: []string{"chat"}}
	skip := thread.Choice{AgentID: c, Decision: thread.DecisionSkip, Reason: thread.ReasonDepth}
	now := time.Unix(0, 0)

	tr := dispatch.Trace{Trigger: "chat"}
	steps := []struct {
		entry thread.Entry
		over  bool
	}{
		{before.Claim(0), false},
		{reaction.Decided("other", now, react(a)), false},
		{reaction.Decided("chat", now, react(a), react(b), skip), false},
		{one.Claim(0), false},
		{one.Delta(0, 0, 0, 0, "I look"), false},
		{one.Round(0, "I look.", "ls", "pwd"), false},
		{one.Claim(1), false},
		{before.Reply(0, "to the other")[1], false},
		{two.Claim(0), false},
		{one.Reply(1, "Two files.")[0], false},
		{one.End(thread.ReactionAnswered, "", ""), false},
		{two.End(thread.ReactionFailed, "denied", "no key"), true},
		{one.End(thread.ReactionFailed, "silent", ""), true},
	}
	for i, step := range steps {
		tr.Add(step.entry)
		if tr.Over() != step.over {
			t.Errorf("behind step %d, %s, it is over: %v", i, step.entry.ID, tr.Over())
		}
	}
	if len(tr.Reactions) != 2 {
		t.Fatalf("reactions %+v", tr.Reactions)
	}
	first, second := tr.Reactions[0], tr.Reactions[1]
	if first.Bot != a || first.Claims != 2 || len(first.Rounds) != 2 || len(first.Rounds[0].Calls) != 2 ||
		first.Answer() != "Two files." || second.Bot != b || second.Answer() != "" ||
		second.End.Outcome != thread.ReactionFailed {
		t.Errorf("reactions %+v", tr.Reactions)
	}

	driver := react(a)
	driver.Reason = thread.ReasonDriver
	for _, d := range []thread.Entry{
		reaction.Decided("chat", now), reaction.Decided("chat", now, skip), reaction.Decided("chat", now, driver),
	} {
		none := dispatch.Trace{Trigger: "chat"}
		if none.Add(d); !none.Over() {
			t.Errorf("nobody reacts, and it is not over: %s", d.Payload)
		}
	}
}
