package server_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

// bot makes the entries of one reaction on t1.
type bot struct{ name, x string }

func newBot(name string) bot { return bot{name, thread.ReactionID("t1", name, 0)} }

func (b bot) claim(k int) thread.Entry {
	p := thread.ReactionClaimed{Type: thread.TypeReactionClaimed, Reaction: b.x, Claim: k, AgentID: b.name}
	if k == 0 {
		p.Begun = &thread.Begun{Chats: []string{"c1"}, Upto: "0"}
	}
	return thread.NewEntry(thread.ReactionClaimID(b.x, k), b.name, p)
}

func (b bot) alive(k, n int) thread.Entry {
	return thread.NewEntry(thread.ReactionAliveID(b.x, k, n), b.name,
		thread.ReactionAlive{Type: thread.TypeReactionAlive, Reaction: b.x, Claim: k})
}

func (b bot) delta(round, k, i int, text string) thread.Entry {
	return thread.NewEntry(thread.DeltaID(b.x, round, k, i), b.name, thread.Delta{
		Type: thread.TypeDelta, Reaction: thread.InReaction{ID: b.x, Round: round}, From: i * len(text), Text: text,
	})
}

func (b bot) round(n int) thread.Entry {
	return thread.NewEntry(thread.RoundID(b.x, n), b.name, thread.Round{
		Type: thread.TypeRound, Reaction: thread.InReaction{ID: b.x, Round: n}, Message: []byte(`{"role":"assistant"}`),
	})
}

func (b bot) end() thread.Entry {
	return thread.NewEntry(thread.ReactionEndID(b.x), b.name, thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: b.x, Chats: []string{"c1"}, Outcome: thread.ReactionFailed,
	})
}

// watchedEngines opens each engine, whose calls are counted.
var watchedEngines = map[string]func(t *testing.T) (*testServer, *watched){
	"pebble": newWatched,
	"jetstream": func(t *testing.T) (*testServer, *watched) {
		natsd, err := natsserver.Start(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { natsserver.Stop(natsd) })
		e, err := jetstream.Open(t.Context(), jetstream.Config{
			URL: natsd.ClientURL(), Shards: 2, Replicas: 1, AllowUnsafe: true,
			Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return watch(t, e)
	},
}

// Deltas are deleted a while after their round, or after the end of a reaction that has no such round; signs of
// life after their reaction, but for the last. Nothing else is, and nothing of what is open.
func TestExpirePassing(t *testing.T) {
	for name, open := range watchedEngines {
		t.Run(name, func(t *testing.T) {
			s, engine := open(t)
			path, token := "/api/stream/arbe-thread-t1", writer(t, "t1")
			post := func(entries ...thread.Entry) (a log.Appended) {
				t.Helper()
				for _, e := range entries {
					one, err := s.log.Append(t.Context(), "t1", []thread.Entry{e})
					if err != nil {
						t.Fatal(err)
					}
					a.Duplicates, a.Next = a.Duplicates+one.Duplicates, one.Next
				}
				return a
			}
			stored := func() (all []string) {
				t.Helper()
				return strings.Fields(ids(t, s.do("GET", path+"?offset=0", token, "").body))
			}
			began := time.Now()
			expire := func(after time.Duration, keep log.Retention, want int) {
				t.Helper()
				got, err := s.log.Expire(t.Context(), began.Add(after), keep)
				if err != nil || got.Passing != want || got.Heartbeats != 0 {
					t.Errorf("after %v: %+v, %v, want %d", after, got, err, want)
				}
			}
			rules := log.Retention{Passing: time.Hour}
			idle := func(after time.Duration) {
				t.Helper()
				reads, appends := engine.reads.Load(), engine.appends.Load()
				expire(after, rules, 0)
				if r, a := engine.reads.Load()-reads, engine.appends.Load()-appends; r+a > 0 {
					t.Errorf("after %v: %d reads and %d appends for nothing", after, r, a)
				}
			}
			post(signals("r1", 0, 3, "end.0")...)
			idle(100 * time.Hour) // no bot has answered: the thread is not even read

			piet, alma := newBot("piet"), newBot("alma")
			gone := []thread.Entry{
				piet.delta(0, 0, 0, "a"), piet.delta(0, 0, 1, "b"), piet.alive(0, 0), piet.delta(1, 0, 2, "c"),
				piet.delta(1, 1, 0, "c"), piet.alive(1, 0),
			}
			all := []thread.Entry{
				piet.claim(0), gone[0], gone[1], gone[2], piet.round(0), gone[3], piet.claim(1), gone[4], gone[5],
				piet.alive(1, 1), alma.claim(0), alma.delta(0, 0, 0, "x"), alma.alive(0, 0), alma.delta(0, 0, 1, "y"),
				alma.alive(0, 1), piet.end(), chatEntry("c2"),
			}
			next := post(all...).Next
			before := stored()
			expire(100*time.Hour, log.Retention{}, 0) // no rule
			expire(50*time.Minute, rules, 0)
			idle(55 * time.Minute)
			if got := stored(); cmp.Diff(before, got) != "" {
				t.Error("something was removed too early")
			}
			expire(2*time.Hour, rules, len(gone))
			idle(3 * time.Hour)
			var left []string
			for _, id := range before {
				if !slices.ContainsFunc(gone, func(e thread.Entry) bool { return e.ID == id }) {
					left = append(left, id)
				}
			}
			if d := cmp.Diff(left, stored()); d != "" {
				t.Error(d)
			}
			// What was removed was there: its id and its offset stay used.
			if a := post(all...); a.Duplicates != len(all) || a.Next != next {
				t.Errorf("posted again: %+v, want the offset %d", a, next)
			}
			// The other one ends, and a piece of its text is the thread's last entry: that stays until another comes.
			post(alma.end(), alma.delta(0, 0, 2, "z"))
			expire(4*time.Hour, rules, 1)
			post(chatEntry("c3"))
			expire(5*time.Hour, rules, 3)
			if d := cmp.Diff(append(left[:len(left)-7:len(left)-7],
				alma.claim(0).ID, alma.alive(0, 1).ID, piet.end().ID, "c2", alma.end().ID, "c3"), stored()); d != "" {
				t.Error(d)
			}
			idle(6 * time.Hour)
			// A rule that comes later finds what the other one has passed over.
			if got, err := s.log.Expire(t.Context(), began.Add(7*time.Hour),
				log.Retention{Heartbeats: time.Minute, Passing: time.Hour}); err != nil || got.Passing != 0 ||
				got.Heartbeats != 2 {
				t.Errorf("heartbeats: %+v, %v", got, err)
			}
		})
	}
}

func chatEntry(id string) thread.Entry {
	return thread.NewEntry(id, "ann", thread.Chat{Type: thread.TypeChat, Text: "hello"})
}
