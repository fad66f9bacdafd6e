// Package botchaos makes random schedules of chats on the threads of a house with bots, and of strikes against the
// hosts that dispatch. From a thread's log, and from the requests to the model, it checks that each bot has answered
// its triggers, once. It does no I/O: package e2e/dispatch plays the schedules with real processes.
package botchaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// Bot is a bot of a house. Its name is one word.
type Bot struct {
	ID, Name string
	Mode     string // a Mode constant of package rows
}

// Post is a chat of a person.
type Post struct {
	After time.Duration // since the one before
	Text  string        // no other one of any schedule has it
	Names []string      // bots that it names
	Stop  bool          // its author then stops a bot that is answering
}

// Schedule is a random course of chats on one thread.
type Schedule struct {
	Seed  uint64
	Bots  []Bot // of the thread's house
	Posts []Post
}

// Make returns the schedule of a seed.
func Make(seed uint64, bots []Bot) Schedule {
	r := rand.New(rand.NewPCG(seed, 31))
	s := Schedule{Seed: seed, Bots: bots}
	for i := range 2 + r.IntN(5) {
		p := Post{
			After: time.Duration(r.IntN(6000)) * time.Millisecond, Text: fmt.Sprintf("chat-%d-%d.", seed, i),
		}
		for _, b := range bots {
			switch r.IntN(5) {
			case 0, 1:
				p.Text += " @" + b.Name
				p.Names = append(p.Names, b.Name)
			case 2:
				p.Text += " `@" + b.Name + "`" // names nobody
			}
		}
		if r.IntN(4) == 0 {
			p.After = 0
		}
		p.Stop = r.IntN(12) == 0
		s.Posts = append(s.Posts, p)
	}
	last := &s.Posts[len(s.Posts)-1]
	if !slices.ContainsFunc(s.Posts, func(p Post) bool { return len(p.Names) > 0 }) {
		last.Names = []string{bots[0].Name}
		last.Text += " @" + bots[0].Name
	}
	return s
}

// Hands has the places in which tools have effects, besides the rows of threads; nil for bots that only make threads.
type Hands struct {
	File  string                    // to which commands append
	Board func(house string) string // the thread of a house on which its bots post
}

// call returns a call of any tool whose effect can be counted, by a name that no other call has.
func (h *Hands) call(r *rand.Rand, house, name string) model.Tool {
	kind := Thread
	if h != nil {
		kind = Kinds[r.IntN(len(Kinds))]
	}
	var arguments map[string]any
	switch kind {
	case Thread:
		arguments = map[string]any{"name": name}
	case Command:
		arguments = map[string]any{"command": fmt.Sprintf("echo %s >>'%s'", name, h.File)}
	case Task:
		arguments = map[string]any{"task": name}
	case Chat:
		arguments = map[string]any{"text": name, "thread": h.Board(house)}
	}
	return model.Tool{Name: kind, Arguments: arguments}
}

// Reply returns what the model replies to a question: never the same twice, mostly fast, now and then slow, an error or
// a stream that breaks off. n is the number of the question.
func Reply(r *rand.Rand, n int, q Question, bots []Bot, h *Hands) model.Reply {
	reply := model.Reply{Wait: model.Duration(r.IntN(300)) * model.Duration(time.Millisecond)}
	switch x := r.IntN(100); {
	case x < 6:
		reply.Status, reply.Message, reply.RetryAfter = 429, "slow down", "1"
		return reply
	case x < 9:
		reply.Status, reply.Message = 529, "overloaded"
		return reply
	case x < 12:
		reply.Cut = 1 + r.IntN(4)
	case x < 14:
		reply.Error, reply.Cut = "overloaded", 1+r.IntN(4)
	}
	if q.Gate {
		reply.Tools = []model.Tool{{Name: "decide", Arguments: map[string]any{"respond": r.IntN(3) > 0, "why": "so"}}}
		return reply
	}
	words := 3 + r.IntN(20)
	if r.IntN(4) == 0 {
		reply.Pace = model.Duration(30+r.IntN(170)) * model.Duration(time.Millisecond)
		words = 30
	}
	reply.Text = fmt.Sprintf("reply-%d-%d.%s", n, r.Uint64(), strings.Repeat(" word", words))
	switch {
	case q.Round < 2 && r.IntN(5) == 0:
		for i := range 1 + r.IntN(2) {
			name := fmt.Sprintf("made-%d-%d-%d", n, i, r.Uint64())
			reply.Tools = append(reply.Tools, h.call(r, q.House, name))
		}
	case r.IntN(4) == 0: // bots wake bots
		reply.Text += " @" + bots[r.IntN(len(bots))].Name
	}
	return reply
}

// Kind is the kind of a strike.
type Kind string

// The kinds. A host that is killed or terminated is started again.
const (
	Kill    Kind = "KILL"                               // at any moment
	Drop    Kind = "KILL before an append arrives"      // which never does
	Late    Kind = "KILL, and an append arrives"        // after it
	Applied Kind = "KILL after an append"               // before its answer
	Stop    Kind = "STOP"                               // at any moment, for Lasts
	StopAt  Kind = "STOP while an append is on its way" // which arrives when it continues
	Commit  Kind = "KILL before a commit"               // of a row of dispatch_cache
	Term    Kind = "TERM"
)

// Hosts is the number of hosts that dispatch.
const Hosts = 3

var kinds = []Kind{Kill, Kill, Drop, Late, Applied, Stop, StopAt, Commit, Term}

// appends are the types of entries at whose append a host is killed or stopped.
var appends = []string{
	thread.TypeDecided, thread.TypeReactionClaimed, thread.TypeReactionAlive, thread.TypeRound, thread.TypeResult,
	thread.TypeReactionFinished, thread.TypeDelta,
}

// Strike kills or stops one host.
type Strike struct {
	After time.Duration // since the one before
	Kind  Kind
	At    string        // type of the entry whose append is meant, where the kind has one
	Lasts time.Duration // of Stop and StopAt: until it continues; else until the host is started again
}

// Strikes returns random strikes for a time. Some stops are longer than a lease.
func Strikes(seed uint64, lasts, mean time.Duration) (all []Strike) {
	r := rand.New(rand.NewPCG(seed, 13))
	upto := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	for at := time.Duration(0); at < lasts; {
		s := Strike{
			After: upto(2 * mean), Kind: kinds[r.IntN(len(kinds))], At: appends[r.IntN(len(appends))],
			Lasts: upto(3 * time.Second),
		}
		if s.Kind == Stop || s.Kind == StopAt {
			s.Lasts = time.Second + upto(8*time.Second)
			if r.IntN(2) == 0 {
				s.Lasts = 20*time.Second + upto(8*time.Second)
			}
		}
		at += s.After
		all = append(all, s)
	}
	return all
}
