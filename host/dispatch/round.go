package dispatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// round asks the model, and appends its reply. A reply without calls ends the reaction.
func (r *reaction) round(ctx context.Context, j Journal, all notes, room Room, step Step) error {
	reply, err := r.ask(ctx, j, all, room, step)
	if unpaid, is := errors.AsType[*Unpaid](err); is {
		return r.post(ctx, r.end(j, thread.ReactionRefused, "budget", unpaid.Message))
	} else if failed, is := errors.AsType[*model.Error](err); is {
		return r.post(ctx, r.end(j, thread.ReactionFailed, classes[failed.Kind], failed.Error()))
	} else if err != nil {
		return err
	}
	used := r.used
	r.used = Used{}
	usage, cost := used.wire()
	round := thread.Round{
		Type: thread.TypeRound, Reaction: thread.InReaction{ID: j.ID, Round: step.Round, Depth: j.Depth},
		Message: thread.Marshal(messageOf(reply.Parts)), StopReason: string(reply.Stop), Provider: j.Provider,
		Model: cmp.Or(reply.Model, j.Model), Usage: usage, Cost: cost,
	}
	if len(callsOf(round.Message)) > 0 {
		return r.post(ctx, entry(thread.RoundID(j.ID, step.Round), j.Bot, round))
	}
	r.board.see(func(s *State) {
		if !s.drive.is { // else its run still gets them
			round.Chats = j.Chats
		}
	})
	j.Rounds = append(j.Rounds[:len(j.Rounds):len(j.Rounds)], Round{Used: used})
	end := r.end(j, thread.ReactionAnswered, "", "")
	return r.post(ctx, entry(thread.RoundID(j.ID, step.Round), j.Bot, round), end)
}

// classes are the error classes of a reaction.
var classes = map[model.Kind]string{
	model.Again: "provider_unreachable", model.Denied: "denied", model.TooLong: "context",
	model.Invalid: "provider_error", model.Garbage: "provider_error",
}

// ask asks the model until it has replied, as often as the kind of each error allows.
func (r *reaction) ask(ctx context.Context, j Journal, all notes, room Room, step Step) (model.Reply, error) {
	api, err := r.Model(ctx, r.worker.id, j.Provider)
	if err != nil {
		return model.Reply{}, err
	}
	tries := tries{began: time.Now(), budget: contextTokens, wait: time.Second}
	for {
		q := request(all.of(&j), &j, room, r.specs(&j), tries.budget)
		q.MaxTokens = j.caps().Output
		b := billOf(q, j.Provider, room, r.context)
		left, err := r.paid(j, b)
		if err != nil {
			return model.Reply{}, err
		}
		q.NoCalls = !step.Tools || b.most > left
		reply, err := r.stream(ctx, api, q, b, j, step.Round)
		if q.NoCalls {
			reply = withoutCalls(reply)
		}
		if err == nil && len(reply.Parts) == 0 && reply.Stop != model.StopRefused {
			if tries.empty++; tries.empty > 1 {
				reply.Parts = []model.Part{{Text: "(no answer)"}}
				return reply, nil
			}
			continue
		}
		failed, is := errors.AsType[*model.Error](err)
		if !is {
			return reply, err
		}
		delay, again := tries.after(failed)
		if !again || !pause.For(ctx, delay) {
			return reply, cmp.Or[error](ctx.Err(), err)
		}
	}
}

// withoutCalls returns a reply without the calls that its provider must not have made: it is the last one.
func withoutCalls(r model.Reply) model.Reply {
	r.Parts = slices.DeleteFunc(r.Parts, func(p model.Part) bool { return p.Call != nil })
	if r.Stop == model.StopCalls {
		r.Stop = model.StopEnd
	}
	return r
}

// tries are the requests for one round so far.
type tries struct {
	began   time.Time
	budget  int           // tokens of the context
	wait    time.Duration // before the next one, where the provider names no time
	empty   int           // replies without anything
	garbled int           // and those that make no sense
}

// after returns whether the request is made again after an error, and how much later.
func (t *tries) after(failed *model.Error) (delay time.Duration, again bool) {
	switch failed.Kind {
	case model.Again:
		delay = max(t.wait, failed.RetryAfter)
		t.wait = min(2*t.wait, mostRetry)
		return delay, time.Since(t.began)+delay <= patience
	case model.TooLong:
		t.budget /= 2
		return 0, t.budget == contextTokens/2 // once
	case model.Garbage:
		t.garbled++
		return 0, t.garbled <= garbled
	case model.Denied, model.Invalid:
	}
	return 0, false
}

// The pace of deltas.
const (
	deltaEvery = 400 * time.Millisecond
	deltaSlow  = 2 * time.Second // from the 50th of a round on
	deltaMost  = 4 << 10
	slowFrom   = 50
)

// stream asks the model once, and posts the text as it comes.
func (r *reaction) stream(
	ctx context.Context, api model.Model, q model.Request, b bill, j Journal, round int,
) (reply model.Reply, err error) {
	d := deltas{reaction: r, journal: j, round: round, ready: make(chan struct{}, 1), quit: make(chan struct{})}
	var posting sync.WaitGroup
	posting.Go(func() { d.run(ctx) })
	reply, err = r.send(ctx, api, q, b, j, d.add)
	close(d.quit)
	posting.Wait()
	return reply, err
}

// deltas posts the text of a round while it comes. The round has it whole: what can't be posted is left out.
type deltas struct {
	*reaction
	journal Journal
	round   int
	ready   chan struct{} // has one element where enough text is there
	quit    chan struct{}

	textMu sync.Mutex
	text   string
	from   int // characters that were posted
	tools  []string
}

func (d *deltas) add(e model.Event) {
	d.textMu.Lock()
	d.text += e.Text
	if e.Tool != "" {
		d.tools = append(d.tools, e.Tool)
	}
	full := len(d.text) >= deltaMost
	d.textMu.Unlock()
	if full {
		select {
		case d.ready <- struct{}{}:
		default:
		}
	}
}

func (d *deltas) run(ctx context.Context) {
	for n := 0; ; n++ {
		every := deltaEvery
		if n >= slowFrom {
			every = deltaSlow
		}
		select {
		case <-d.quit:
			return
		case <-d.ready:
		case <-time.After(every):
		}
		d.post(ctx)
	}
}

func (d *deltas) post(ctx context.Context) {
	d.textMu.Lock()
	p := thread.Delta{
		Type: thread.TypeDelta, Reaction: thread.InReaction{ID: d.id, Round: d.round, Depth: d.journal.Depth},
		From: d.from, Text: d.text, Tools: d.tools,
	}
	d.text, d.tools, d.from = "", nil, d.from+utf8.RuneCountInString(p.Text)
	d.textMu.Unlock()
	if p.Text == "" && p.Tools == nil {
		return
	}
	e := entry(thread.DeltaID(d.id, d.round, d.claim, d.deltas), d.journal.Bot, p)
	e.TS = thread.Stamp(d.board.time())
	d.reaction.deltas++
	ctx, cancel := context.WithTimeout(ctx, aliveEvery) // the round does not wait for them
	defer cancel()
	if err := d.board.thread.Append(ctx, e); err != nil {
		d.Log.Debug("a delta is not posted", "reaction", d.id, "error", err)
	}
}
