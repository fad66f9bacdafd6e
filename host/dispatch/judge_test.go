package dispatch_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/thread"
)

// judge returns what is wrong with the thread.
func (w *world) judge(n tally) (bad []string, _ tally) {
	fault := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	type reaction struct {
		thread.ReactionClaimed
		end    *thread.ReactionFinished
		finals int
	}
	all := map[string]*reaction{}
	open := map[string]string{} // the open reaction of each bot
	answered := map[[2]string]int{}
	want := map[[2]string]bool{}
	calls := map[string]string{}
	for _, e := range w.entries {
		switch p := payload(e).(type) {
		case thread.Decided:
			for _, c := range p.Bots {
				if c.Decision == thread.DecisionReact {
					want[[2]string{p.Trigger, c.AgentID}] = true
				}
			}
		case thread.ReactionClaimed:
			if p.Begun == nil {
				continue
			}
			if other := open[p.AgentID]; other != "" {
				fault("%s and %s of one bot are open", other, p.Reaction)
			}
			open[p.AgentID] = p.Reaction
			all[p.Reaction] = &reaction{ReactionClaimed: p}
			n.joined += len(p.Chats) - 1
			n.deepest = max(n.deepest, p.Depth)
		case thread.Round:
			n.rounds++
			cs := dispatch.CallsOf(p.Message)
			for i, c := range cs {
				calls[thread.CallKey(p.Reaction.ID, p.Reaction.Round, i)] = string(c.Arguments)
			}
			if len(cs) == 0 {
				all[p.Reaction.ID].finals++
			}
		case thread.ReactionFinished:
			r := all[p.Reaction]
			r.end, open[r.AgentID] = &p, ""
			for _, c := range p.Chats {
				answered[[2]string{c, r.AgentID}]++
			}
			if p.Outcome == thread.ReactionFailed {
				n.failed++
			}
		}
	}
	for id, r := range all {
		if r.end == nil {
			fault("%s has no end", id)
		} else if is := r.finals == 1; is != (r.end.Outcome == thread.ReactionAnswered) {
			fault("%s is %s with %d final replies", id, r.end.Outcome, r.finals)
		}
	}
	for p := range want {
		if answered[p] != 1 {
			fault("%s stands in %d ends of %s", p[0], answered[p], p[1])
		}
	}
	for p := range answered {
		if !want[p] {
			fault("%s answered %s, and was not asked", p[1], p[0])
		}
	}
	for _, e := range w.entries {
		if payload(e) == nil && len(w.mentioned(e)) > 0 {
			for _, bot := range w.mentioned(e) {
				if !want[[2]string{e.ID, bot}] {
					fault("the mention of %s in %s was not heard", bot, e.ID)
				}
			}
		}
	}
	for key, args := range w.effects {
		if arg, ok := calls[key]; !ok {
			fault("an effect of no call of the thread: %s", key)
		} else if slices.ContainsFunc(args, func(a string) bool { return a != arg }) {
			fault("%s had other arguments than on the thread", key)
		}
	}
	for key := range calls {
		id, _, _ := strings.Cut(key, "-")
		if r := all[id]; r.end != nil && r.end.Outcome == thread.ReactionAnswered && w.effects[key] == nil {
			fault("no effect of %s", key)
		}
	}
	n.reactions, n.pairs, n.models = len(all), len(want), w.models
	slices.Sort(bad)
	return bad, n
}

// mentioned returns the bots that a chat names.
func (w *world) mentioned(e thread.Entry) (bots []string) {
	for _, b := range w.room.Bots {
		if strings.Contains(string(e.Payload), "@"+b.Name) {
			bots = append(bots, b.ID)
		}
	}
	return bots
}

// payload returns the payload of an entry of a host; nil of a chat.
func payload(e thread.Entry) any {
	f, err := thread.Scan(e.Payload)
	if err != nil {
		panic(err)
	}
	switch f.Type {
	case thread.TypeDecided:
		return parse[thread.Decided](e)
	case thread.TypeReactionClaimed:
		return parse[thread.ReactionClaimed](e)
	case thread.TypeRound:
		return parse[thread.Round](e)
	case thread.TypeReactionFinished:
		return parse[thread.ReactionFinished](e)
	case thread.TypeResult:
		return parse[thread.CallResult](e)
	}
	return nil
}

func parse[T any](e thread.Entry) (p T) {
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		panic(err)
	}
	return p
}
