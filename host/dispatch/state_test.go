package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/thread"
)

func react(bot, reason string) thread.Choice {
	return thread.Choice{AgentID: bot, Decision: thread.DecisionReact, Reason: reason}
}

// after is the time a number of seconds after a thread's first entry.
func after(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// What a host can do on a thread at a time.
func TestOpen(t *testing.T) {
	t.Parallel()
	ambient := func(seconds int) thread.Choice {
		c := react(piet, thread.ReasonAmbient)
		c.DueAt = thread.Stamp(after(seconds))
		return c
	}
	first := thread.ReactionID("t1", piet, 0)
	claim := func(k int) line {
		return line{thread.ReactionClaimID(first, k), piet, thread.ReactionClaimed{
			Type: thread.TypeReactionClaimed, Reaction: first, Claim: k, AgentID: piet, Instance: fmt.Sprint(k),
			LeaseMs: 20_000,
		}}
	}
	alive := func(k int, released bool) line {
		return line{thread.ReactionAliveID(first, k, 0), piet, thread.ReactionAlive{
			Type: thread.TypeReactionAlive, Reaction: first, Claim: k, Released: released,
		}}
	}
	mentioned := []line{chat("m1", "ann", "@piet"), decided("m1", 0, react(piet, thread.ReasonMention))}
	taken := slices.Clip(append(slices.Clone(mentioned), claimed(piet, 0, 0, "m1")))
	again := []line{chat("m2", "ann", "@piet"), decided("m2", 0, react(piet, thread.ReasonMention))}
	for name, tt := range map[string]struct {
		lines []line
		at    int // seconds
		want  string
	}{
		"a chat":   {mentioned[:1], 0, "decide m1"},
		"of a run": {[]line{{"r1.prompt", "ann", thread.Chat{Type: thread.TypeChat, RunID: "r1"}}}, 0, ""},
		"mirrored": {[]line{{"l1", "ann", map[string]any{"type": "chat", "session": "s"}}}, 0, ""},
		"quiet":    {[]line{{"l1", "ann", map[string]any{"type": "chat", "quiet": true}}}, 0, ""},
		"a task's result": {
			[]line{chat("t2.r1.result", piet, "@alma"), chat("t2.r1.result.corrected", piet, "@alma")}, 0, "",
		},
		"a decision":           {mentioned, 1, "start piet.0 m1 mention"},
		"a bot that may not":   {[]line{mentioned[0], decided("m1", 0, thread.Choice{AgentID: piet})}, 1, ""},
		"a claim":              {taken, 3, "due 22"},
		"a silent holder":      {taken, 22, "take 1"},
		"a living holder":      {append(taken, alive(0, false)), 22, "due 23"},
		"a released one":       {append(taken, alive(0, true)), 4, "take 1"},
		"a former one's life":  {append(taken, claim(1), alive(0, true)), 5, "due 23"},
		"two holders lost":     {append(taken, claim(1), claim(2)), 60, "take 3"},
		"all holders lost":     {append(taken, claim(1), claim(2), claim(3), claim(4)), 60, "crashed"},
		"released in between":  {append(taken, claim(2), alive(2, true), claim(3), claim(4), claim(5)), 60, "take 6"},
		"an older claim again": {append(taken, claim(2), claim(1)), 60, "take 3"},
		"answered":             {append(taken, final(piet, 0, 0, "well")...), 5, "decide piet.0.0"},
		"mentions while it is open": {
			append(taken, again...), 5, "due 22",
		},
		"mentions join": {
			append(mentioned, again...), 5,
			"start piet.0 m1,m2 mention",
		},
		"replies do not join": {
			append(mentioned, chat("m2", alma, "@piet"), decided("m2", 1, react(piet, thread.ReasonMention))), 5,
			"start piet.0 m1 mention",
		},
		"one reply at a time": {
			[]line{
				chat("m1", alma, "@piet"), chat("m2", gus, "@piet"),
				decided("m2", 1, react(piet, thread.ReasonMention)),
				decided("m1", 1, react(piet, thread.ReasonMention)),
			}, 5, "start piet.0 m1 mention",
		},
		"ambient waits":  {[]line{mentioned[0], decided("m1", 0, ambient(4))}, 3, "due 4"},
		"ambient is due": {[]line{mentioned[0], decided("m1", 0, ambient(4))}, 4, "start piet.0 m1 ambient"},
		"ambient is put off": {
			[]line{mentioned[0], decided("m1", 0, ambient(4)), chat("m2", "ann", ""), decided("m2", 0, ambient(9))},
			5,
			"due 9",
		},
		"ambient is not put off for ever": {
			[]line{mentioned[0], decided("m1", 0, ambient(4)), chat("m2", "ann", ""), decided("m2", 0, ambient(90))},
			30,
			"start piet.0 m1,m2 ambient",
		},
		"a mention does not wait for the ambient": {
			append(mentioned, chat("m2", "ann", ""), decided("m2", 0, ambient(90))), 5,
			"start piet.0 m1 mention, due 32",
		},
		"the second reaction": {
			append(append(taken, final(piet, 0, 0, "well")...), decided(thread.RoundID(first, 0), 1),
				chat("m2", "ann", ""), decided("m2", 0, react(piet, thread.ReasonAlways))), 9, "start piet.1 m2 always",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := open(stateOf(tt.lines...), after(tt.at)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// open returns what can be done at a time, as a line.
func open(s *dispatch.State, now time.Time) string {
	var names []string
	for n := range 3 {
		names = append(names, thread.ReactionID("t1", piet, n), fmt.Sprint("piet.", n))
	}
	var all []string
	w := s.Open(now)
	for _, t := range w.Decide {
		all = append(all, "decide "+t.ID)
	}
	for _, st := range w.Start {
		all = append(all, fmt.Sprint("start ", st.ID, " ", strings.Join(st.Chats, ","), " ", st.Reason))
	}
	for _, j := range w.Take {
		if j.Crashed() {
			all = append(all, "crashed")
		} else {
			all = append(all, fmt.Sprint("take ", j.Claim+1))
		}
	}
	for _, r := range w.Resume {
		all = append(all, fmt.Sprint("resume ", r.Chat, " of ", r.Author))
		if !r.From.IsZero() {
			all = append(all, fmt.Sprint("from ", r.From.Sub(epoch).Seconds()))
		}
	}
	if !w.Due.IsZero() {
		all = append(all, fmt.Sprint("due ", w.Due.Sub(epoch).Seconds()))
	}
	return strings.NewReplacer(names...).Replace(strings.Join(all, ", "))
}

// A reaction's newest sign of work is a claim, a sign of life, a round or a result, of its present holder.
func TestLast(t *testing.T) {
	t.Parallel()
	first := thread.ReactionID("t1", piet, 0)
	s := stateOf(chat("m1", "ann", "@piet"), decided("m1", 0, react(piet, thread.ReasonMention)),
		claimed(piet, 0, 0, "m1"))
	for i, tt := range []struct {
		id      string
		payload any
		is      bool
	}{
		{"m2", thread.Chat{Type: thread.TypeChat, Text: "and?"}, false},
		{thread.ReactionAliveID(first, 0, 0), thread.ReactionAlive{Type: thread.TypeReactionAlive, Reaction: first}, true},
		{thread.DeltaID(first, 0, 0, 0), thread.Delta{Type: thread.TypeDelta, Text: "x"}, false},
		{thread.ReactionClaimID(first, 1), thread.ReactionClaimed{
			Type: thread.TypeReactionClaimed, Reaction: first, Claim: 1, AgentID: piet,
		}, true},
		{thread.ReactionAliveID(first, 0, 1), thread.ReactionAlive{Type: thread.TypeReactionAlive, Reaction: first}, false},
		{thread.RoundID(first, 0), thread.Round{
			Type: thread.TypeRound, Reaction: thread.InReaction{ID: first}, Message: []byte(`{"role":"assistant",` +
				`"content":[{"type":"toolCall","id":"c0","name":"echo","arguments":{}}]}`),
		}, true},
		{thread.CallResultID(first, 0, 0), thread.CallResult{
			Type: thread.TypeResult, Reaction: thread.InReaction{ID: first}, Message: []byte(`{}`),
		}, true},
	} {
		before, at := s.Reaction(first).Last(), after(100+i)
		e := entry(tt.id, piet, tt.payload)
		e.At = thread.Stamp(at)
		s.Add(e)
		if now := s.Reaction(first).Last(); now.Equal(at) != tt.is || !tt.is && !now.Equal(before) {
			t.Errorf("%s at %v: the last is %v", tt.id, at, now)
		}
	}
}

// What was before the house has begun to dispatch is nobody's.
func TestSince(t *testing.T) {
	t.Parallel()
	s := dispatch.NewState("t1", after(1))
	for i := range 2 {
		e := entry(fmt.Sprint("m", i), "ann", thread.Chat{Type: thread.TypeChat})
		e.At = thread.Stamp(after(i))
		s.Add(e)
	}
	if got := open(s, after(5)); got != "decide m1" {
		t.Error(got)
	}
}

// The next step of a reaction has a row for each thing that its journal may have.
func TestNext(t *testing.T) {
	t.Parallel()
	id := thread.ReactionID("t1", piet, 0)
	round := func(n, calls int) line {
		content := slices.Repeat([]string{`{"type":"toolCall","id":"c","name":"echo","arguments":{}}`}, calls)
		return line{thread.RoundID(id, n), piet, thread.Round{
			Type: thread.TypeRound, Reaction: thread.InReaction{ID: id, Round: n},
			Message: fmt.Appendf(nil, `{"role":"assistant","content":[%s]}`, strings.Join(content, ",")),
		}}
	}
	result := func(n, i int) line {
		return line{thread.CallResultID(id, n, i), piet, thread.CallResult{
			Type: thread.TypeResult, Reaction: thread.InReaction{ID: id, Round: n},
		}}
	}
	used := func(n int) line {
		l := round(0, 1)
		p := l.payload.(thread.Round)
		p.Usage = fmt.Appendf(nil, `{"input":%d,"output":10,"cacheRead":20,"cacheWrite":30}`, n)
		l.payload = p
		return l
	}
	stop := line{"s", "ann", thread.ReactionCancel{Type: thread.TypeReactionCancel, Reaction: id}}
	begun := claimed(piet, 0, 0, "m1")
	ambient := claimed(piet, 0, 0, "m1")
	p := ambient.payload.(thread.ReactionClaimed)
	p.Begun = &thread.Begun{Reason: thread.ReasonAmbient}
	ambient.payload = p
	both := []line{result(0, 1), result(0, 0)}
	for name, tt := range map[string]struct {
		lines []line
		at    int // seconds
		want  string
	}{
		"begun":                 {[]line{begun}, 0, "model 0"},
		"ambient":               {[]line{ambient}, 0, "gate"},
		"ambient, with a round": {[]line{ambient, round(0, 1)}, 0, "calls [0] of 0"},
		"stopped":               {[]line{begun, stop}, 0, "cancelled"},
		"stopped in a call":     {[]line{begun, round(0, 1), stop}, 0, "cancelled"},
		"two calls":             {[]line{begun, round(0, 2)}, 0, "calls [0 1] of 0"},
		"the second call":       {[]line{begun, round(0, 2), result(0, 0)}, 0, "calls [1] of 0"},
		"both have results":     {append([]line{begun, round(0, 2)}, both...), 0, "model 1"},
		"a result twice":        {[]line{begun, round(0, 2), result(0, 0), result(0, 0)}, 0, "calls [1] of 0"},
		"a round out of turn":   {[]line{begun, round(1, 1)}, 0, "model 0"},
		"the cap of rounds":     {[]line{begun, round(0, 1), result(0, 0), round(1, 1), result(1, 0)}, 0, "last 2"},
		"the cap of calls":      {append([]line{begun, round(0, 2), round(1, 0)}, both...), 0, "last 2"},
		"99 tokens":             {[]line{begun, used(39), result(0, 0)}, 0, "model 1"},
		"the cap of tokens":     {[]line{begun, used(40), result(0, 0)}, 0, "last 1"},
		"59 s":                  {[]line{begun, round(0, 1), result(0, 0)}, 59, "model 1"},
		"60 s":                  {[]line{begun, round(0, 1), result(0, 0)}, 60, "last 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caps := dispatch.Caps{Rounds: 2, Calls: 3, Wall: time.Minute, Tokens: 100}
			if got := step(dispatch.Next(stateOf(tt.lines...).Reaction(id), caps, after(tt.at))); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// step returns a step as a line.
func step(s dispatch.Step) string {
	switch {
	case s.Do == dispatch.DoFinish:
		return s.Outcome
	case s.Do == dispatch.DoGate:
		return "gate"
	case s.Do == dispatch.DoCalls:
		return fmt.Sprint("calls ", s.Calls, " of ", s.Round)
	case s.Tools:
		return fmt.Sprint("model ", s.Round)
	}
	return fmt.Sprint("last ", s.Round)
}
