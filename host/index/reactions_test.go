package index_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/thread"
)

// posted returns an entry of a bot.
func posted(id, bot string, payload any) thread.Entry { return thread.NewEntry(id, bot, payload) }

// claimed, delta, alive, reply and finished are the entries of a bot's first reaction on t1.
func claimed(bot string, k int) thread.Entry {
	x := thread.ReactionID("t1", bot, 0)
	c := thread.ReactionClaimed{Type: thread.TypeReactionClaimed, Reaction: x, Claim: k, AgentID: bot, Instance: "i"}
	if k == 0 {
		c.Begun = &thread.Begun{Chats: []string{"c1"}, Reason: thread.ReasonMention, Upto: "0"}
	}
	return posted(thread.ReactionClaimID(x, k), bot, c)
}

func delta(bot string, i int) thread.Entry {
	x := thread.ReactionID("t1", bot, 0)
	return posted(thread.DeltaID(x, 0, 0, i), bot, thread.Delta{
		Type: thread.TypeDelta, Reaction: thread.InReaction{ID: x}, From: 5 * i, Text: "text ",
	})
}

func alive(bot string, n int, released bool) thread.Entry {
	x := thread.ReactionID("t1", bot, 0)
	return posted(thread.ReactionAliveID(x, 0, n), bot, thread.ReactionAlive{
		Type: thread.TypeReactionAlive, Reaction: x, Released: released,
	})
}

func reply(bot string) thread.Entry {
	x := thread.ReactionID("t1", bot, 0)
	return posted(thread.RoundID(x, 0), bot, thread.Round{
		Type: thread.TypeRound, Reaction: thread.InReaction{ID: x}, Message: []byte(`{"role":"assistant"}`),
		Usage: []byte(`{"input":7,"output":5}`), Cost: new(0.25), Chats: []string{"c1"},
	})
}

func finished(bot string) thread.Entry {
	x := thread.ReactionID("t1", bot, 0)
	return posted(thread.ReactionEndID(x), bot, thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: x, Outcome: thread.ReactionAnswered, Chats: []string{"c1"},
		Rounds: 1, Usage: []byte(`{"input":7,"output":5}`), Cost: new(0.25), // as its only reply
	})
}

// declined is the end of a reaction without a reply: what it used stands there alone.
func declined(bot string) thread.Entry {
	x := thread.ReactionID("t1", bot, 0)
	return posted(thread.ReactionEndID(x), bot, thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: x, Outcome: thread.ReactionDeclined, Chats: []string{"c1"},
		Usage: []byte(`{"input":2,"output":1}`), Cost: new(0.125),
	})
}

func chat(id string) thread.Entry {
	return thread.NewEntry(id, "ann", thread.Chat{Type: thread.TypeChat, Text: "hello"})
}

// A thread's summary has who answers, and the tokens and cost of replies.
func TestReactionsOfSummary(t *testing.T) {
	w := newWorld(t)
	for i, step := range []struct {
		entries   []thread.Entry
		reactions int
		answering []string
		pending   int
	}{
		{[]thread.Entry{chat("c1")}, 0, nil, 1},
		{[]thread.Entry{claimed("piet", 0)}, 1, []string{"piet"}, 1},
		{[]thread.Entry{claimed("alma", 0), delta("piet", 0)}, 2, []string{"piet", "alma"}, 1},
		{[]thread.Entry{claimed("piet", 1)}, 2, []string{"piet", "alma"}, 1}, // another host has it now
		{[]thread.Entry{reply("piet"), finished("piet")}, 1, []string{"alma"}, 0},
		{[]thread.Entry{declined("alma")}, 0, nil, 0},
	} {
		w.append("t1", step.entries...)
		v := must(w.x.Summary(t.Context(), "t1"))(t)
		if v.Reactions != step.reactions || cmp.Diff(step.answering, v.Answering) != "" || v.Pending != step.pending {
			t.Errorf("step %d: %+v", i, v)
		}
		if v.Status != thread.StatusIdle || v.Lines != 0 {
			t.Errorf("step %d: an answer is no run: %+v", i, v)
		}
	}
	v := must(w.x.Summary(t.Context(), "t1"))(t)
	if v.Usage == nil || v.Usage.Input != 9 || v.Usage.Output != 6 || v.Cost == nil || *v.Cost != 0.375 {
		t.Errorf("usage %+v, cost %v", v.Usage, v.Cost)
	}
	w.check()
	w.close()
	w.open()
	w.check()
}

// The text of a bot as it comes, and its signs of life, change no summary, store nothing and wake no reader of the
// list, whichever server has them. What comes behind them does.
func TestDeltasWakeNobody(t *testing.T) {
	for name, told := range map[string]bool{"appended here": true, "appended by another server": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.append("t1", chat("c1"), claimed("piet", 0))
			before := must(w.x.Summary(t.Context(), "t1"))(t)
			list(t, w.x, index.Query{})
			reader := w.x.Watch()
			defer reader.Close()
			take := func() int {
				t.Helper()
				list(t, w.x, index.Query{}) // all is folded
				changes, _, err := reader.Take(t.Context(), 100)
				if err != nil {
					t.Fatal(err)
				}
				return len(changes)
			}
			size := func() int64 {
				t.Helper()
				return must(os.Stat(filepath.Join(w.dir, "threads.0")))(t).Size()
			}
			stored := size()
			if !told {
				w.log.Changed = func(c log.Change) { w.x.Changed(log.Change{Stream: c.Stream}) }
			}
			for i := range 100 {
				w.append("t1", delta("piet", i))
				if i%10 == 0 {
					w.append("t1", alive("piet", i, false))
				}
			}
			if n := take(); n != 0 {
				t.Errorf("%d changes by deltas", n)
			}
			if d := cmp.Diff(before, must(w.x.Summary(t.Context(), "t1"))(t)); d != "" {
				t.Error(d)
			}
			if now := size(); now != stored {
				t.Errorf("%d bytes were stored", now-stored)
			}
			w.check()
			behind := []thread.Entry{alive("piet", 200, true), claimed("piet", 1), reply("piet"), finished("piet")}
			for i, e := range behind {
				w.append("t1", e)
				if n := take(); n != 1 {
					t.Errorf("entry %d behind them: %d changes", i, n)
				}
				w.append("t1", delta("piet", 200+i))
			}
			after := must(w.x.Summary(t.Context(), "t1"))(t)
			if after.Reactions != 0 || after.Offset != fmt.Sprintf("%020d", w.upto("t1")-1) {
				t.Errorf("got %+v", after)
			}
			w.check()
			w.close()
			w.open()
			if d := cmp.Diff(after, must(w.x.Summary(t.Context(), "t1"))(t)); d != "" {
				t.Error(d)
			}
			w.check()
		})
	}
}

// upto returns the tail of a thread.
func (w *world) upto(id string) uint64 {
	w.t.Helper()
	v := must(w.log.Stat(w.t.Context(), thread.StreamName(id)))(w.t)
	return v.Tail()
}
