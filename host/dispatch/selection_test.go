package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// Ids of the bots of these tests.
const (
	piet = "11111111-0000-4000-8000-000000000000"
	alma = "22222222-0000-4000-8000-000000000000"
	gus  = "33333333-0000-4000-8000-000000000000"
	tina = "44444444-0000-4000-8000-000000000000"
)

// room is a house of ann with piet, alma, gus and tina, in the order in which they joined.
func room(modes ...string) dispatch.Room {
	r := dispatch.Room{Humans: []dispatch.Member{{ID: "ann", Name: "ann"}}}
	for i, name := range []string{"Piet", "Alma", "Gus", "Tina"} {
		b := dispatch.Bot{
			ID: []string{piet, alma, gus, tina}[i], Name: name, Joined: epoch.Add(-time.Duration(9-i) * time.Hour),
			Mode: rows.ModeMention, AmbientDelay: 4 * time.Second, Cooldown: 30 * time.Second,
		}
		if i < len(modes) {
			b.Mode = modes[i]
		}
		r.Bots = append(r.Bots, b)
	}
	return r
}

// line is an entry of a thread that grows by one a second.
type line struct {
	id, author string
	payload    any
}

func stateOf(lines ...line) *dispatch.State {
	s := dispatch.NewState("t1", epoch)
	for i, l := range lines {
		e := entry(l.id, l.author, l.payload)
		e.At = thread.Stamp(epoch.Add(time.Duration(i) * time.Second))
		s.Add(e)
	}
	return s
}

func chat(id, author, text string) line {
	return line{id, author, thread.Chat{Type: thread.TypeChat, Text: text}}
}

// decided is a decision without bots that makes a trigger one of this depth.
func decided(trigger string, depth int, bots ...thread.Choice) line {
	return line{thread.DecidedID(trigger), "", thread.Decided{
		Type: thread.TypeDecided, Trigger: trigger, Depth: depth, Bots: bots,
	}}
}

// claimed is a bot's n-th reaction.
func claimed(bot string, n int, depth int, chats ...string) line {
	id := thread.ReactionID("t1", bot, n)
	return line{thread.ReactionClaimID(id, 0), bot, thread.ReactionClaimed{
		Type: thread.TypeReactionClaimed, Reaction: id, AgentID: bot, Instance: "i", LeaseMs: 20_000,
		Begun: &thread.Begun{Chats: chats, Depth: depth, Reason: thread.ReasonMention},
	}}
}

// final is the last round of a bot's n-th reaction, and its end.
func final(bot string, n, depth int, text string) []line {
	id := thread.ReactionID("t1", bot, n)
	return []line{
		{thread.RoundID(id, 0), bot, thread.Round{
			Type: thread.TypeRound, Reaction: thread.InReaction{ID: id, Depth: depth},
			Message: fmt.Appendf(nil, `{"role":"assistant","content":[{"type":"text","text":%q}]}`, text),
		}},
		{thread.ReactionEndID(id), bot, thread.ReactionFinished{
			Type: thread.TypeReactionFinished, Reaction: id, Outcome: thread.ReactionAnswered,
		}},
	}
}

// answers is a thread on which bots have replied one after the other since ann's chat.
func answers(turns int, last ...line) []line {
	lines := []line{chat("m1", "ann", "go"), decided("m1", 0)}
	for i := range turns {
		lines = append(lines, claimed(gus, i, 0))
		lines = append(lines, final(gus, i, 0, "well")...)
		lines = append(lines, decided(thread.RoundID(thread.ReactionID("t1", gus, i), 0), 1))
	}
	return append(lines, last...)
}

// Each rule on who reacts has a row.
func TestSelect(t *testing.T) {
	t.Parallel()
	via := func(depth int) line {
		return line{"x-0-0", piet, map[string]any{
			"type": "chat", "text": "@alma look", "via": thread.Via{
				ThreadID: "t0", Depth: depth, Root: &thread.Root{AuthorID: "ann", ThreadID: "t0", EntryID: "m0"},
			},
		}}
	}
	off := room(rows.ModeAlways)
	off.Off = true
	driven := room(rows.ModeMention, rows.ModeAlways, rows.ModeAmbient)
	driven.Driver = piet
	drivenOff := driven
	drivenOff.Off = true
	young := room()
	young.Bots[1].Joined = epoch.Add(time.Hour)
	nine := dispatch.Room{Humans: []dispatch.Member{{ID: "ann", Name: "ann"}}}
	for i := range 9 {
		nine.Bots = append(nine.Bots, dispatch.Bot{ID: fmt.Sprintf("%08d", i), Name: fmt.Sprint("b", i)})
	}
	always := room(rows.ModeAlways, rows.ModeAlways, rows.ModeAlways, rows.ModeAlways)
	for name, tt := range map[string]struct {
		lines []line
		room  dispatch.Room
		want  string
	}{
		"nobody":                 {[]line{chat("m1", "ann", "hello")}, room(), "0 ann:"},
		"a mention":              {[]line{chat("m1", "ann", "@piet hello")}, room(), "0 ann: piet react mention"},
		"the author is skipped":  {[]line{chat("m1", piet, "@piet @alma")}, room(), "1: alma react mention"},
		"a chat of a bot":        {[]line{chat("m1", piet, "hello @alma")}, room(), "1: alma react mention"},
		"a stranger's chat":      {[]line{chat("m1", "eve", "hello @alma")}, room(), "1: alma react mention"},
		"over the mode":          {[]line{chat("m1", "ann", "@piet")}, room("ambient"), "0 ann: piet react mention"},
		"always":                 {[]line{chat("m1", "ann", "hello")}, room("always"), "0 ann: piet react always"},
		"off":                    {[]line{chat("m1", "ann", "hello")}, room(rows.ModeOff), "0 ann:"},
		"off, and named":         {[]line{chat("m1", "ann", "@piet")}, room(rows.ModeOff), "0 ann: piet skip mode"},
		"a thread that is off":   {[]line{chat("m1", "ann", "@alma")}, off, "0 ann: alma skip mode"},
		"newer than the trigger": {[]line{chat("m1", "ann", "@alma")}, young, "0 ann:"},
		"ambient waits": {
			[]line{chat("m1", "ann", "hello")},
			room(rows.ModeAmbient),
			"0 ann: piet react ambient 2026-06-01T00:00:04.000Z",
		},
		"ambient of a bot does not": {
			[]line{chat("m1", alma, "hello")}, room(rows.ModeAmbient), "1: piet react ambient",
		},
		"depth 7":     {[]line{via(7)}, room(), "7 ann: alma react mention"},
		"depth 8":     {[]line{via(8)}, room(), "8 ann: alma skip depth"},
		"named twice": {[]line{chat("m1", "ann", "@piet @PIET")}, room(), "0 ann: piet react mention"},
		"of four, the three oldest": {
			[]line{chat("m1", "ann", "hello")},
			always,
			"0 ann: piet react always, alma react always, gus react always, tina skip cap",
		},
		"nine are named": {
			[]line{chat("m1", "ann", "@b0 @b1 @b2 @b3 @b4 @b5 @b6 @b7 @b8")},
			nine,
			"0 ann: b0 react mention, b1 react mention, b2 react mention, b3 react mention, b4 react mention, " +
				"b5 react mention, b6 react mention, b7 react mention, b8 skip cap",
		},
		"a reply":               {answers(1, chat("m2", gus, "@piet")), room(), "1: piet react mention"},
		"19 turns":              {answers(19, chat("m2", gus, "@piet")), room(), "1: piet react mention"},
		"20 turns":              {answers(20, chat("m2", gus, "@piet")), room(), "1: piet skip cap"},
		"20 turns, and a human": {answers(20, chat("m2", "ann", "@piet")), room(), "0 ann: piet react mention"},
		"within its cooldown": {
			answers(1, chat("m2", piet, "hello")), room("", "", rows.ModeAlways), "1: gus skip cooldown",
		},
		"within its cooldown, of a human": {
			answers(1, chat("m2", "ann", "hello")), room("", "", rows.ModeAlways), "0 ann: gus react always",
		},
		"within its cooldown, named": {
			answers(1, chat("m2", piet, "@gus")), room("", "", rows.ModeAlways), "1: gus react mention",
		},
		"the cooldown is over": {
			answers(1, append(seconds(30), chat("m2", piet, "hello"))...), room("", "", rows.ModeAlways),
			"1: gus react always",
		},
		"a driven thread": {
			[]line{chat("m1", "ann", "go on, @gus")}, driven, "0 ann: piet react driver, gus react mention",
		},
		"a driven thread that is off": {
			[]line{chat("m1", "ann", "go on, @piet")}, drivenOff, "0 ann: piet skip mode",
		},
		"a driven thread that is off, and nobody named": {[]line{chat("m1", "ann", "go on")}, drivenOff, "0 ann:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stateOf(tt.lines...)
			var got string
			open := s.Open(epoch).Decide
			got = shown(s.Select(open[len(open)-1], tt.room), tt.room)
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// seconds are entries that bots have nothing to do with.
func seconds(n int) []line {
	return slices.Repeat([]line{{"", "", map[string]string{"type": "signal.x"}}}, n)
}

// shown returns a decision as a line.
func shown(d thread.Decided, r dispatch.Room) string {
	var b strings.Builder
	fmt.Fprint(&b, d.Depth)
	if d.Root != nil {
		fmt.Fprint(&b, " ", d.Root.AuthorID)
	}
	b.WriteByte(':')
	for i, c := range d.Bots {
		if i > 0 {
			b.WriteByte(',')
		}
		at := slices.IndexFunc(r.Bots, func(b dispatch.Bot) bool { return b.ID == c.AgentID })
		fmt.Fprintf(&b, " %s %s %s", strings.ToLower(r.Bots[at].Name), c.Decision, c.Reason)
		if c.DueAt != "" {
			b.WriteString(" " + c.DueAt)
		}
	}
	return b.String()
}

// Whatever the room is: never the author, never behind depth 7, and the order of the rows has no influence.
func TestSelectAny(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	modes := []string{
		rows.ModeMention, rows.ModeAmbient, rows.ModeAlways, rows.ModeOff, "",
	}
	for range 5000 {
		r := room(modes[rnd.IntN(5)], modes[rnd.IntN(5)], modes[rnd.IntN(5)], modes[rnd.IntN(5)])
		depth := rnd.IntN(12)
		author := []string{"ann", "eve", piet, alma, gus, tina}[rnd.IntN(6)]
		s := stateOf(line{"e", author, map[string]any{
			"type": "chat", "text": []string{"", "@piet", "@alma @Gus", "@tina `@gus`"}[rnd.IntN(4)],
			"via": map[string]any{"threadId": "t0", "depth": depth},
		}})
		trigger := s.Open(epoch).Decide[0]
		d := s.Select(trigger, r)
		for _, c := range d.Bots {
			if c.AgentID == author || depth >= 8 && c.Decision == thread.DecisionReact {
				t.Fatalf("depth %d, author %s: %+v", depth, author, c)
			}
		}
		other := r
		other.Bots = slices.Clone(r.Bots)
		rnd.Shuffle(4, func(i, j int) { other.Bots[i], other.Bots[j] = other.Bots[j], other.Bots[i] })
		if a, b := shown(d, r), shown(s.Select(trigger, other), other); a != b {
			t.Fatalf("%s, and in another order %s", a, b)
		}
	}
}

// What names a bot, and what does not.
func TestMentions(t *testing.T) {
	t.Parallel()
	bots := []dispatch.Bot{
		{ID: piet, Name: "Piet"},
		{ID: alma, Name: "Alma Two"},
		{ID: gus, Name: "Gus"},
		{ID: tina, Name: "Gus"},
		{ID: "55555555-0000", Name: "Pieter"},
		{ID: "66666666-0000", Name: "Äße"},
	}
	for text, want := range map[string]string{
		"@piet":                      "1",
		"hello @Piet, how are you":   "1",
		"@PIET: and @pieter":         "1 5",
		"(@piet)":                    "1",
		"ask @piet's opinion":        "1",
		"@piete":                     "",
		"piet":                       "",
		"mail ann@piet.org":          "",
		"@@piet":                     "",
		`@"Alma Two" and @piet`:      "2 1",
		"@alma two":                  "2",
		"@alma":                      "",
		"@gus":                       "", // two have that name
		"@33333333":                  "3",
		"@äße":                       "6",
		"`@piet`":                    "",
		"```\n@piet\n```\n":          "",
		"    @piet":                  "",
		"> @piet":                    "",
		"> said who\n\nbut @piet is": "1",
		"- one\n- @piet\n":           "1",
		"# @piet\n":                  "1",
		"**@piet**":                  "1",
		"a *b @piet* c":              "1",
		"one\n@piet":                 "1",
		"| a |\n|---|\n| @piet |":    "1",
		strings.Repeat("x", 1<<20):   "",
		"":                           "",
	} {
		var got []string
		ids, shared := dispatch.Mentions(text, bots)
		for _, id := range ids {
			got = append(got, id[:1])
		}
		if (strings.Join(shared, " ") == "gus") != (text == "@gus") {
			t.Errorf("%.40q has the shared names %q", text, shared)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%.40q names %v, want %q", text, got, want)
		}
	}
}
