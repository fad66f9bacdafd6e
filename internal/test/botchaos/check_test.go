package botchaos

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

var bots = []Bot{
	{ID: "b-piet", Name: "piet", Mode: rows.ModeMention},
	{ID: "b-alma", Name: "alma", Mode: rows.ModeMention},
	{ID: "b-gus", Name: "gus", Mode: rows.ModeAlways},
}

// The same seed makes the same schedule, each of which names a bot.
func TestMake(t *testing.T) {
	kinds := map[Kind]bool{}
	for seed := range uint64(50) {
		s := Make(seed, bots)
		if !reflect.DeepEqual(s, Make(seed, bots)) {
			t.Errorf("seed %d makes two schedules", seed)
		}
		named := 0
		for _, p := range s.Posts {
			named += len(p.Names)
		}
		if named == 0 {
			t.Errorf("seed %d names nobody", seed)
		}
		strikes := Strikes(seed, time.Minute, 2*time.Second)
		if !reflect.DeepEqual(strikes, Strikes(seed, time.Minute, 2*time.Second)) || len(strikes) < 10 {
			t.Errorf("seed %d has %d strikes, or others each time", seed, len(strikes))
		}
		for _, s := range strikes {
			kinds[s.Kind] = true
		}
	}
	if len(kinds) != 8 {
		t.Errorf("the strikes are %v", kinds)
	}
}

func TestParse(t *testing.T) {
	for name, body := range map[string]string{
		"messages": `{"system":[{"type":"text","text":"You are piet, a bot of the house \"One\"."}],"messages":[
			{"role":"user","content":[{"type":"text","text":"[chat from ann (human) 12:00 id old]\nhello"}]},
			{"role":"assistant","content":[{"type":"text","text":"hi"}]},
			{"role":"user","content":[{"type":"text","text":"[answer this]\n[chat from ann (human) 12:00 id m1]\nwell?"},
				{"type":"text","text":"[answer this]\n[reply from alma (bot) 12:01 id x_1.0]\nno"}]},
			{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"echo","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"no such tool"}]}]}`,
		"chat-completions": `{"messages":[{"role":"system","content":"You are piet, a bot of the house \"One\""},
			{"role":"user","content":"[answer this]\n[chat from ann (human) 12:00 id m1]\nwell?"},
			{"role":"user","content":[{"type":"text","text":"[answer this]\n[reply from alma (bot) 12:01 id x_1.0]\nno"}]},
			{"role":"assistant","tool_calls":[]},{"role":"tool","content":"no such tool"}]}`,
	} {
		q := Parse([]byte(body))
		if want := (Question{Bot: "piet", House: "One", Asked: []string{"m1", "x_1.0"}, Round: 1}); !reflect.DeepEqual(q, want) {
			t.Errorf("%s: got %+v", name, q)
		}
	}
	if q := Parse([]byte(`{"messages":[],"tool_choice":{"type":"tool","name":"decide"}}`)); !q.Gate {
		t.Errorf("got %+v", q)
	}
}

// log writes the log of a thread as hosts do.
type log struct {
	Result
	at time.Time
}

func (l *log) post(id, author string, payload any) {
	l.at = l.at.Add(time.Second)
	l.Entries = append(l.Entries, thread.Entry{
		ID: id, AuthorID: author, Payload: thread.Marshal(payload), At: thread.Stamp(l.at), TS: thread.Stamp(l.at),
	})
}

func (l *log) decide(trigger string, depth int, bots ...thread.Choice) {
	l.post(thread.DecidedID(trigger), "", thread.Decided{
		Type: thread.TypeDecided, Trigger: trigger, Depth: depth, Root: root, Bots: bots,
	})
}

var root = &thread.Root{AuthorID: "ann", ThreadID: "t", EntryID: "m0"}

func (l *log) claim(x, bot string, k int, begun *thread.Begun) {
	l.post(thread.ReactionClaimID(x, k), bot, thread.ReactionClaimed{
		Type: thread.TypeReactionClaimed, Reaction: x, Claim: k, AgentID: bot, Instance: fmt.Sprint("h", k),
		Begun: begun,
	})
}

func (l *log) round(x, bot string, n, depth int, text string, calls []string, chats ...string) {
	content := []map[string]string{{"type": "text", "text": text}}
	for _, c := range calls {
		content = append(content, map[string]string{"type": "toolCall", "id": c})
	}
	l.post(thread.RoundID(x, n), bot, thread.Round{
		Type: thread.TypeRound, Reaction: thread.InReaction{ID: x, Round: n, Depth: depth}, Chats: chats,
		Message: thread.Marshal(map[string]any{"role": "assistant", "content": content}),
	})
}

func (l *log) end(x, bot, outcome string, chats ...string) {
	l.post(thread.ReactionEndID(x), bot, thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: x, Chats: chats, Outcome: outcome,
	})
}

func react(bot, reason string) thread.Choice {
	return thread.Choice{AgentID: bot, Decision: thread.DecisionReact, Reason: reason}
}

var (
	piets = thread.ReactionID("t", "b-piet", 0)
	almas = thread.ReactionID("t", "b-alma", 0)
)

// answered is a thread on which a person names piet, whose reply names alma, who is taken over once.
func answered() *log {
	l := &log{at: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), Result: Result{
		Schedule: Schedule{Bots: bots[:2], Posts: []Post{{Text: "hello @piet", Names: []string{"piet"}}}},
		Thread:   "t", People: []string{"ann"}, IDs: []string{"m0"}, Struck: func(i string) bool { return i == "h0" },
		Questions: []Question{
			{Bot: "piet", Asked: []string{"m0"}, Text: "I look", Whole: true},
			{Bot: "piet", Asked: []string{"m0"}, Round: 1, Text: "ask @alma", Whole: true},
			{Bot: "alma", Asked: []string{piets + ".1"}, Text: "lost", Whole: true},
			{Bot: "alma", Asked: []string{piets + ".1"}, Text: "bro"},
			{Bot: "alma", Asked: []string{piets + ".1"}, Text: "fine", Whole: true},
		},
	}}
	l.post("m0", "ann", thread.Chat{Type: thread.TypeChat, Text: "hello @piet"})
	l.decide("m0", 0, react("b-piet", thread.ReasonMention))
	l.claim(piets, "b-piet", 0, &thread.Begun{Chats: []string{"m0"}, Root: root, Reason: thread.ReasonMention})
	l.post(thread.DeltaID(piets, 0, 0, 0), "b-piet", thread.Delta{
		Type: thread.TypeDelta, Reaction: thread.InReaction{ID: piets}, From: 2, Text: "lo",
	})
	l.round(piets, "b-piet", 0, 0, "I look", []string{"c1"})
	l.post(thread.CallResultID(piets, 0, 0), "b-piet", thread.CallResult{
		Type: thread.TypeResult, Reaction: thread.InReaction{ID: piets}, ToolCallID: "c1",
	})
	l.round(piets, "b-piet", 1, 0, "ask @alma", nil, "m0")
	l.end(piets, "b-piet", thread.ReactionAnswered, "m0")
	l.decide(piets+".1", 1, react("b-alma", thread.ReasonMention))
	l.claim(almas, "b-alma", 0, &thread.Begun{
		Chats: []string{piets + ".1"}, Depth: 1, Root: root, Reason: thread.ReasonMention,
	})
	l.post(thread.ReactionAliveID(almas, 0, 0), "b-alma", thread.ReactionAlive{
		Type: thread.TypeReactionAlive, Reaction: almas,
	})
	l.claim(almas, "b-alma", 1, nil)
	l.round(almas, "b-alma", 0, 1, "fine", nil, piets+".1")
	l.end(almas, "b-alma", thread.ReactionAnswered, piets+".1")
	l.decide(almas+".0", 2)
	return l
}

// entry returns the place of an entry.
func (l *log) entry(id string) int {
	i := slices.IndexFunc(l.Entries, func(e thread.Entry) bool { return e.ID == id })
	if i < 0 {
		panic("no entry " + id)
	}
	return i
}

func (l *log) remove(id string) { i := l.entry(id); l.Entries = slices.Delete(l.Entries, i, i+1) }

// change replaces a text in the payload of an entry.
func (l *log) change(id, from, to string) {
	e := &l.Entries[l.entry(id)]
	if !strings.Contains(string(e.Payload), from) {
		panic(string(e.Payload))
	}
	e.Payload = json.RawMessage(strings.Replace(string(e.Payload), from, to, 1))
}

// makes changes piet's call to one of a tool that makes something, and sets the effects that are found.
func (l *log) makes(tool string, made ...Effect) {
	l.change(piets+".0", `"id":"c1"`, `"id":"c1","name":"`+tool+`","arguments":{"x":"echo made-1-0-7 >>f"}`)
	l.Made = append([]Effect{}, made...)
}

// Each call has its effect once. One by the key of an attempt, and not of the call, is found for each tool.
func TestEffects(t *testing.T) {
	const name = "made-1-0-7"
	key := thread.CallKey(piets, 0, 0)
	for i, tool := range Kinds {
		known := key // in the effect
		if tool == Command {
			known = "" // a line of a file
		}
		for why, tt := range map[string]struct {
			made []Effect
			want string
		}{
			"once": {[]Effect{{tool, known, name}}, ""},
			"lost": {nil, "call " + key + " of " + tool + " has a result, and has had no effect"},
			"twice, by the key of each attempt": {
				[]Effect{{tool, known, name}, {tool, known + ".1", name}},
				"call " + key + " of " + tool + " has had its effect 2 times",
			},
			"once, by the key of an attempt": {
				[]Effect{{tool, key + ".1", name}}, "(" + name + ", key " + key + ".1) is of no call",
			},
			"of a reply that is not there": {
				[]Effect{{tool, known, name}, {tool, "x_y-0-0", "made-2-0-7"}}, "(made-2-0-7, key x_y-0-0) is of no call",
			},
			"of another tool": {[]Effect{{"hello_world", known, name}}, "an effect of hello_world"},
		} {
			l := answered()
			l.makes(tool, tt.made...)
			got, n := l.Check()
			if all := strings.Join(got, "\n"); tt.want == "" && all != "" || !strings.Contains(all, tt.want) ||
				why == "once" && n.Made[i] != 1 {
				t.Errorf("%s %s: got %s\nwant %s", tool, why, all, tt.want)
			}
		}
	}
}

// Check finds what is wrong, and nothing else.
func TestCheck(t *testing.T) {
	final := piets + ".1"
	again := thread.ReactionID("t", "b-piet", 1)
	for _, tt := range []struct {
		name  string
		spoil func(l *log)
		want  string // a part of one of the faults; "" for none
	}{
		{"all is well", func(*log) {}, ""},
		{"a lost chat", func(l *log) { l.remove("m0") }, "chat 0 (m0) is not on the thread"},
		{"no decision", func(l *log) { l.remove(thread.DecidedID("m0")) }, "m0 is not decided"},
		{"a forged decision", func(l *log) {
			l.post("d_forged.decided", "", thread.Decided{Type: thread.TypeDecided, Trigger: "m0"})
		}, "d_forged.decided has the id of something else"},
		{
			"a mention without effect",
			func(l *log) { l.change(thread.DecidedID("m0"), "b-piet", "b-gus") },
			"m0 should have asked piet (mention), which is not listed",
		},
		{
			"a bot that is not concerned",
			func(l *log) {
				l.change(thread.DecidedID("m0"), `"bots":[`, `"bots":[{"agentId":"b-alma","decision":"react"},`)
			},
			"m0 does not concern alma",
		},
		{
			"a mention that is skipped",
			func(l *log) { l.change(thread.DecidedID("m0"), `"react","reason":"mention"`, `"skip","reason":"cap"`) },
			"m0 should have asked piet (mention), and has skip cap at depth 0",
		},
		{"a wrong depth", func(l *log) { l.change(thread.DecidedID(final), `"depth":1`, `"depth":0`) }, "at depth 0"},
		{"an answer is missing", func(l *log) {
			for _, id := range []string{".claim.0", ".alive.0.0", ".claim.1", ".0", ".end"} {
				l.remove(almas + id)
			}
			l.remove(thread.DecidedID(almas + ".0"))
		}, final + " stands in 0 ends of b-alma"},
		{"a doubled answer", func(l *log) {
			l.claim(again, "b-piet", 0, &thread.Begun{Chats: []string{"m0"}, Root: root})
			l.round(again, "b-piet", 0, 0, "ask @alma", nil, "m0")
			l.end(again, "b-piet", thread.ReactionAnswered, "m0")
		}, "m0 stands in 2 ends of b-piet"},
		{"a doubled text", func(l *log) {
			l.claim(again, "b-piet", 0, &thread.Begun{Chats: []string{"m0"}, Root: root})
			l.round(again, "b-piet", 0, 0, "ask @alma", nil, "m0")
			l.end(again, "b-piet", thread.ReactionAnswered, "m0")
		}, "has the text of another one"},
		{"nobody asked", func(l *log) {
			l.claim(thread.ReactionID("t", "b-gus", 0), "b-gus", 0, &thread.Begun{Chats: []string{"m0"}, Root: root})
			l.end(thread.ReactionID("t", "b-gus", 0), "b-gus", thread.ReactionCancelled, "m0")
		}, "b-gus has answered m0, and was not asked"},
		{"no end", func(l *log) { l.remove(almas + ".end") }, almas + " has no end"},
		{"two ends", func(l *log) { l.end(piets, "b-piet", thread.ReactionAnswered, "m0") }, piets + " has a second end"},
		{"a forged end", func(l *log) { l.Entries[l.entry(almas+".end")].ID = almas + ".end2" }, "has the id of something else"},
		{"a forged reaction", func(l *log) {
			l.claim("x_forged", "b-piet", 0, &thread.Begun{Chats: []string{"m0"}, Root: root})
		}, "x_forged.claim.0 has the id of something else"},
		{"a forged author", func(l *log) { l.Entries[l.entry(final)].AuthorID = "b-alma" }, `is of "b-alma", want "b-piet"`},
		{"a forged result", func(l *log) { l.Entries[l.entry(piets+".0.0")].ID = piets + ".0.1" }, "has the id of something else"},
		{"a forged delta", func(l *log) { l.Entries[l.entry(piets+".0.0.d.0")].ID = piets + ".7.0.d.0" }, "forged delta"},
		{
			"a forged sign of life",
			func(l *log) { l.Entries[l.entry(almas+".alive.0.0")].ID = almas + ".alive.1.0" }, "forged sign of life",
		},
		{"two open reactions of a bot", func(l *log) {
			i := l.entry(piets + ".end")
			rest := slices.Clone(l.Entries[i:])
			l.Entries = l.Entries[:i]
			l.claim(again, "b-piet", 0, &thread.Begun{Chats: []string{"m0"}, Root: root})
			l.Entries = append(l.Entries, rest...)
		}, "of one bot are open"},
		{"two final replies", func(l *log) {
			i := l.entry(piets + ".end")
			rest := slices.Clone(l.Entries[i:])
			l.Entries = l.Entries[:i]
			l.round(piets, "b-piet", 2, 0, "more", nil, "m0")
			l.Entries = append(l.Entries, rest...)
		}, "is answered with 2 final replies"},
		{"an answer without a reply", func(l *log) { l.remove(almas + ".0") }, almas + " is answered with 0 final replies"},
		{"a failure", func(l *log) {
			l.remove(almas + ".0")
			l.change(almas+".end", "answered", `failed","errorClass":"denied`)
		}, almas + " is failed denied"},
		{"given up too early", func(l *log) {
			l.remove(almas + ".0")
			l.change(almas+".end", "answered", `failed","errorClass":"crashed`)
		}, almas + " is failed crashed"},
		{"mixed chains", func(l *log) {
			l.change(almas+".claim.0", `"chats":[`, `"chats":["m0",`)
		}, almas + " mixes chains"},
		{"an invented reply", func(l *log) { l.change(almas+".0", "fine", "well") }, "is no reply of the model"},
		{"an invented delta", func(l *log) { l.change(piets+".0.0.d.0", `"lo"`, `"no"`) }, "that the model has not replied"},
		{"a round before its results", func(l *log) { l.remove(piets + ".0.0") }, "comes before the results"},
		{
			"a round after the end",
			func(l *log) { l.round(almas, "b-alma", 1, 1, "more", nil) },
			almas + ".1 comes after the end",
		},
		{
			"taken from a live host",
			func(l *log) { l.Struck = func(string) bool { return false } },
			almas + " was taken from h0, to which nothing had happened, after 1s",
		},
		{"a round of a host that does not know of the end", func(l *log) {
			l.round(almas, "b-alma", 1, 1, "more", []string{"c"})
		}, ""},
		{"a claim is left out", func(l *log) { l.remove(almas + ".claim.0") }, "belongs to no reaction"},
		{"paid for too often", func(l *log) {
			l.Questions = append(l.Questions, l.Questions[1])
		}, "was paid for 2 times by 1 hosts"},
		{"a question about nothing", func(l *log) {
			l.Questions = append(l.Questions, Question{Bot: "alma", Asked: []string{"m0"}})
		}, "1 requests to the model are of no reaction"},
		{"an unknown entry", func(l *log) { l.post("u", "", map[string]string{"type": "signal.x"}) }, "u is a signal.x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := answered()
			tt.spoil(l)
			got, _ := l.Check()
			if tt.want == "" && got != nil {
				t.Errorf("got\n%s", strings.Join(got, "\n"))
			}
			if tt.want != "" && !strings.Contains(strings.Join(got, "\n"), tt.want) {
				t.Errorf("got\n%s\nwant %s", strings.Join(got, "\n"), tt.want)
			}
		})
	}
}

// Check counts, and Open is zero once all is done.
func TestTally(t *testing.T) {
	l := answered()
	_, n := l.Check()
	want := Tally{
		Chats: 1, Pairs: 2, Reactions: 2, Rounds: 3, Taken: 1, Deepest: 1, Questions: 5, Twice: 1,
	}
	if n != want || l.Open() != 0 {
		t.Errorf("got %+v, %d open; want %+v", n, l.Open(), want)
	}
	for i := range l.Entries {
		cut := l.Result
		if cut.Entries = l.Entries[:i]; cut.Open() == 0 {
			t.Errorf("nothing is open after %d entries", i)
		}
	}
}
