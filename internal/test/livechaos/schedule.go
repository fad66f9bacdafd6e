// Package livechaos makes random schedules of chats for running agents and of what fails meanwhile, and checks that
// each chat was delivered once and in order. It does no I/O: package e2e plays the schedules with the real agents.
package livechaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// Chats is how many chats a schedule has.
const Chats = 25

// claude is the harness that has a command which begins another session.
const claude = "claude-code"

// Fault is a failure of a process or of the server.
type Fault string

// The faults.
const (
	WorkerKill Fault = "worker KILL"
	KeeperKill Fault = "keeper KILL"
	AgentKill  Fault = "agent KILL"
	ServerAway Fault = "server away"
	All        Fault = "all combined" // of a Schedule's Kind alone
)

// kinds are those of schedules, in turn.
var kinds = [Kinds]Fault{WorkerKill, KeeperKill, AgentKill, ServerAway, All}

// Kinds is the number of kinds of schedules.
const Kinds = 5

// Chat is a chat to post.
type Chat struct {
	After   time.Duration // since the one before
	Deliver string        // a Deliver constant of package thread
	Text    string        // no other one's text is in it
}

// clear begins a chat with which claude-code begins another session.
const clear = "/clear "

// Clears reports whether the agent forgets at this chat what came before it.
func (c Chat) Clears() bool { return strings.HasPrefix(c.Text, clear) }

// Strike is one fault.
type Strike struct {
	Chat  int           // it follows the chat with this number
	After time.Duration // since that was posted
	Fault Fault
	Lasts time.Duration // of ServerAway
}

// Schedule is a random course of chats and faults.
type Schedule struct {
	Seed    uint64
	Kind    Fault
	Harness string
	Chats   []Chat
	Strikes []Strike // in the order of their chats
	Replies []Reply  // what the model does, request by request; then it answers at once
}

// Reply is the model's reply to one request.
type Reply struct {
	Words  int           // of a text, 20 ms each
	Tool   time.Duration // of a tool call; 0 for none
	Status int           // of an error in place of all that; 0 for none. A 500 is tried again, a 400 fails the turn
}

// Make returns the schedule of a seed. Harnesses and kinds take turns from seed to seed.
func Make(seed uint64, harnesses []string) Schedule {
	r := rand.New(rand.NewPCG(seed, 2))
	ms := func(most int) time.Duration { return time.Duration(r.IntN(most)) * time.Millisecond }
	n := uint64(len(harnesses))
	s := Schedule{Seed: seed, Harness: harnesses[seed%n], Kind: kinds[seed/n%uint64(len(kinds))]}
	for i := range Chats {
		c := Chat{After: ms(350), Deliver: thread.DeliverSteer, Text: fmt.Sprintf("chat-%d-%02d.", seed, i)}
		switch r.IntN(12) {
		case 0:
			c.Deliver = thread.DeliverInterrupt
		case 1, 2:
			c.Deliver = thread.DeliverFollowUp
		case 3: // longer than a page of a pipe
			c.Text += strings.Repeat(" long", r.IntN(14<<10))
		case 4:
			c.Text += "\nin several\r\nlines\u2028here"
		case 5:
			c.After = 0
		case 6:
			if s.Harness == claude && i < Chats-1 {
				c.Text = clear + c.Text
			}
		}
		s.Chats = append(s.Chats, c)
	}
	s.Chats[Chats-1].Deliver = thread.DeliverSteer // after all strikes: the model gets a request that has all chats
	for at := 1 + r.IntN(4); at < Chats-1; at += 2 + r.IntN(7) {
		f := Strike{Chat: at, After: ms(250), Fault: s.Kind}
		if s.Kind == All {
			f.Fault = kinds[r.IntN(len(kinds)-1)]
		}
		if f.Fault == ServerAway {
			f.Lasts = 100*time.Millisecond + ms(1500)
		}
		s.Strikes = append(s.Strikes, f)
		if f.Fault != WorkerKill {
			at += 3 // a further run has to start
		}
	}
	for range 40 {
		s.Replies = append(s.Replies, [...]Reply{
			{Words: 1 + r.IntN(40)},
			{Words: 1},
			{Tool: ms(400) + time.Millisecond},
			{Words: 1 + r.IntN(40)},
			{Words: 1},
			{Tool: ms(400) + time.Millisecond},
			{Words: 1 + r.IntN(40)},
			{Words: 1},
			{Tool: ms(400) + time.Millisecond},
			{Status: 500},
			{Status: 400},
		}[r.IntN(11)])
	}
	return s
}

// Script returns what the model does, where call returns a call of the agent's tool that runs a command.
func (s Schedule) Script(call func(command string) model.Tool) (all []model.Reply) {
	for _, r := range s.Replies {
		reply := model.Reply{
			Text: strings.TrimSpace(strings.Repeat("word ", r.Words)), Pace: model.Duration(20 * time.Millisecond),
		}
		if r.Status > 0 {
			reply = model.Reply{Status: r.Status, Message: "not now"}
		}
		if r.Tool > 0 {
			reply.Tools = []model.Tool{call(fmt.Sprintf("sleep %.3f", r.Tool.Seconds()))}
		}
		all = append(all, reply)
	}
	return append(all, model.Reply{Text: "Fine.", Times: -1})
}

// String returns the schedule in one line but for the texts.
func (s Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, %s:", s.Seed, s.Harness, s.Kind)
	for _, f := range s.Strikes {
		fmt.Fprintf(&b, " %s %v after chat %d;", f.Fault, f.After, f.Chat)
	}
	return b.String()
}
