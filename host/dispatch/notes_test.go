package dispatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// long returns the entries of a thread of many chats, and of a run with many lines. The last chat is a trigger, and is
// a week later.
func long(chats int) []thread.Entry {
	lines := []line{chat("first", "ann", "keep in mind: be kind")}
	for i := range chats {
		lines = append(lines, chat(fmt.Sprint("m", i), "ann", strings.Repeat("word ", 200)),
			line{fmt.Sprint("l", i), "ann", map[string]any{
				"type": "pi.assistant", "session": map[string]any{"id": "s"},
				"message": dispatch.MessageOf([]model.Part{{Text: strings.Repeat("code ", 2000)}}),
			}})
	}
	return append(entries(lines...), later(chat("ask", "ann", "@piet so?"))...)
}

// later returns entries that come a week behind the others.
func later(lines ...line) []thread.Entry {
	all := entries(lines...)
	for i, e := range all {
		all[i].At = thread.Stamp(e.Received().Add(7 * 24 * time.Hour))
	}
	return all
}

// What a host keeps of a thread has a bound. A request has the first chat, how much is left out, and the newest chats.
func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	all := long(3000) // 33 MB
	if got := dispatch.NotesSize(all); got > 600<<10 {
		t.Errorf("%d bytes are kept", got)
	}
	j := &dispatch.Journal{ID: "x_1", Bot: piet, Begun: thread.Begun{Chats: []string{"ask"}}}
	got := shownRequest(dispatch.Context(all, j, lab(), nil, 10_000))
	shown := strings.Count(got, " id m")
	for _, want := range []string{
		"keep in mind", fmt.Sprintf("[%d entries of 1 ", 3000-shown), "id m2999]", "[answer this]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%d chats are shown, and no %q: %.300s", shown, want, got)
		}
	}
	if shown < 15 || len(got) > 31_000 {
		t.Errorf("%d chats in %d bytes", shown, len(got))
	}
}

// A trigger stays, however much comes before it is answered, and so do the rounds of its reaction.
func TestNotesKeepTriggers(t *testing.T) {
	t.Parallel()
	x := thread.ReactionID("t1", piet, 0)
	all := append(entries(append([]line{
		chat("ask", "ann", "@piet so?"),
		{thread.DecidedID("ask"), "", thread.Decided{Type: thread.TypeDecided, Trigger: "ask", Bots: []thread.Choice{
			{AgentID: piet, Decision: thread.DecisionReact, Reason: thread.ReasonMention},
		}}},
		{thread.ReactionClaimID(x, 0), piet, thread.ReactionClaimed{
			Type: thread.TypeReactionClaimed, Reaction: x, AgentID: piet, Begun: &thread.Begun{Chats: []string{"ask"}},
		}},
	}, round(x, piet, 0, "I look.", "3 min")...)...), long(3000)...)
	j := &dispatch.Journal{ID: x, Bot: piet, Begun: thread.Begun{Chats: []string{"ask"}}}
	got := shownRequest(dispatch.Context(all, j, lab(), nil, 10_000))
	for _, want := range []string{"[answer this]\n[chat from ann boss (human) 00:00 id ask]", "I look.", "3 min"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q: %.500s", want, got)
		}
	}
}

// Another holder, which has read more of the thread, asks the model the same.
func TestTakeoverAsksTheSame(t *testing.T) {
	t.Parallel()
	x := thread.ReactionID("t1", piet, 0)
	all := append(long(700), later(
		line{thread.DecidedID("ask"), "", thread.Decided{
			Type: thread.TypeDecided, Trigger: "ask", Bots: []thread.Choice{
				{AgentID: piet, Decision: thread.DecisionReact, Reason: thread.ReasonMention},
			},
		}},
		line{thread.ReactionClaimID(x, 0), piet, thread.ReactionClaimed{
			Type: thread.TypeReactionClaimed, Reaction: x, AgentID: piet, Begun: &thread.Begun{Chats: []string{"ask"}},
		}})...)
	first := shownRequest(dispatch.Asked(all, x, lab()))
	more := append(all, later(chat("n1", "ann", "and the weather?"), chat("n2", "ann", "well?"))...)
	if got := shownRequest(dispatch.Asked(more, x, lab())); got != first || !strings.Contains(got, "so?") {
		t.Errorf("got %.300s\nwant %.300s", got, first)
	}
}
