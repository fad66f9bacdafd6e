// Package reaction composes the entries of bots' reactions, as hosts post them, for tests of what reads them.
package reaction

import (
	"fmt"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// Reaction is a bot's reaction on a thread. Its methods return its entries.
type Reaction struct {
	Thread, Bot string
	N           int       // of the bot's reactions on the thread
	Chats       []string  // ids of the triggers
	Reason      string    // "" for a mention
	At          time.Time // of the entries, by the writer's clock
	Took        time.Duration

	Calls int // so far, for the end
}

// ID returns the reaction's id.
func (r *Reaction) ID() string { return thread.ReactionID(r.Thread, r.Bot, r.N) }

func (r *Reaction) entry(id string, payload any) thread.Entry {
	return thread.Entry{ID: id, TS: thread.Stamp(r.At), AuthorID: r.Bot, Payload: thread.Marshal(payload)}
}

// Claim returns the k-th claim.
func (r *Reaction) Claim(k int) thread.Entry {
	c := thread.ReactionClaimed{
		Type: thread.TypeReactionClaimed, Reaction: r.ID(), Claim: k, AgentID: r.Bot,
		Instance: fmt.Sprint("host", k), LeaseMs: 20_000,
	}
	if k == 0 {
		c.Begun = &thread.Begun{Chats: r.Chats, Reason: r.Reason, Model: "scripted-1", Provider: "anthropic"}
		if c.Reason == "" {
			c.Reason = thread.ReasonMention
		}
	}
	return r.entry(thread.ReactionClaimID(r.ID(), k), c)
}

// Delta returns the i-th piece of the n-th round's text, by the k-th holder.
func (r *Reaction) Delta(n, k, i, from int, text string, tools ...string) thread.Entry {
	return r.entry(thread.DeltaID(r.ID(), n, k, i), thread.Delta{
		Type: thread.TypeDelta, Reaction: r.in(n), From: from, Text: text, Tools: tools,
	})
}

func (r *Reaction) in(n int) thread.InReaction { return thread.InReaction{ID: r.ID(), Round: n} }

// Round returns the n-th round: a text and calls of run_command, whose ids are c0, c1 and so on.
func (r *Reaction) Round(n int, text string, commands ...string) thread.Entry {
	return r.Calling(n, text, "run_command", "command", commands...)
}

// Calling is Round with calls of another tool, each with a value of one argument.
func (r *Reaction) Calling(n int, text, tool, argument string, values ...string) thread.Entry {
	p := thread.Round{
		Type: thread.TypeRound, Reaction: r.in(n), StopReason: "stop", Provider: "anthropic", Model: "scripted-1",
	}
	type part map[string]any
	content := []part{{"type": "text", "text": text}}
	for i, value := range values {
		p.StopReason = "toolUse"
		content = append(content, part{
			"type": "toolCall", "id": fmt.Sprint("c", i), "name": tool, "arguments": part{argument: value},
		})
	}
	if r.Calls += len(values); len(values) == 0 {
		p.Chats = r.Chats
	}
	p.Message = thread.Marshal(part{"role": "assistant", "content": content})
	return r.entry(thread.RoundID(r.ID(), n), p)
}

// Result returns the result of the n-th round's i-th call.
func (r *Reaction) Result(n, i int, text string, failed bool) thread.Entry {
	type part map[string]any
	return r.entry(thread.CallResultID(r.ID(), n, i), thread.CallResult{
		Type: thread.TypeResult, Reaction: r.in(n), ToolCallID: fmt.Sprint("c", i), ToolName: "run_command",
		IsError: failed,
		Message: thread.Marshal(part{"role": "toolResult", "content": []part{{"type": "text", "text": text}}}),
	})
}

// End returns the reaction's end.
func (r *Reaction) End(outcome, class, message string) thread.Entry {
	return r.entry(thread.ReactionEndID(r.ID()), thread.ReactionFinished{
		Type: thread.TypeReactionFinished, Reaction: r.ID(), Chats: r.Chats, Outcome: outcome, ErrorClass: class,
		Message: message, Calls: r.Calls, DurationMs: r.Took.Milliseconds(),
	})
}

// Reply returns the last round and the end, which a host appends together.
func (r *Reaction) Reply(n int, text string) []thread.Entry {
	return []thread.Entry{r.Round(n, text), r.End(thread.ReactionAnswered, "", "")}
}

// Decided returns the decision on a trigger.
func Decided(trigger string, at time.Time, bots ...thread.Choice) thread.Entry {
	return thread.Entry{
		ID: thread.DecidedID(trigger), TS: thread.Stamp(at),
		Payload: thread.Marshal(thread.Decided{Type: thread.TypeDecided, Trigger: trigger, Bots: bots}),
	}
}
