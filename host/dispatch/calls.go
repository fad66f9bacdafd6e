package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Limits of the calls of a round.
const (
	mostReads  = 4               // that run at the same time
	giveUp     = 2 * time.Minute // a call that can't be run for so long gets a result
	callsAgain = 5 * time.Second
)

// callError is the error of a host that can't run a call. It is not the call's result.
type callError struct {
	call int // of the round
	error
}

// Unwrap returns the reason.
func (e *callError) Unwrap() error { return e.error }

// calls runs the next calls of a round: one that acts, or those up to the next one that acts, at the same time. So a
// call sees what those in front of it have changed. The results are appended in the order of the calls, each as soon as
// those in front of it are there.
func (r *reaction) calls(ctx context.Context, j Journal, room Room, step Step) error {
	type ran struct {
		ToolResult
		err error
	}
	next := r.together(j.Rounds[step.Round], step.Calls)
	results := make([]chan ran, len(next))
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for k, i := range next {
		results[k] = make(chan ran, 1)
		all.Go(func() {
			result, err := r.call(running, j, room, step.Round, i)
			results[k] <- ran{result, err}
		})
	}
	for k, i := range next {
		result := <-results[k]
		if result.err != nil {
			return &callError{i, result.err}
		}
		if err := r.post(ctx, resultOf(j, step.Round, i, result.ToolResult)); err != nil {
			return err
		}
	}
	return nil
}

// together returns the first of some calls, with those behind it that run at the same time.
func (r *reaction) together(round Round, calls []int) []int {
	for k, i := range calls[:min(len(calls), mostReads)] {
		if t, is := r.tool(round.Calls[i].Name); is && t.Acts {
			return calls[:max(1, k)]
		}
	}
	return calls[:min(len(calls), mostReads)]
}

// tool returns the tool with a name.
func (h *Host) tool(name string) (t Tool, is bool) {
	i := slices.IndexFunc(h.Tools, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return t, false
	}
	return h.Tools[i], true
}

// resultOf returns the entry of a call's result.
func resultOf(j Journal, round, n int, result ToolResult) thread.Entry {
	call := j.Rounds[round].Calls[n]
	return entry(thread.CallResultID(j.ID, round, n), j.Bot, thread.CallResult{
		Type: thread.TypeResult, Reaction: thread.InReaction{ID: j.ID, Round: round, Depth: j.Depth},
		ToolCallID: call.ID, ToolName: call.Name, IsError: result.IsError, Invalid: result.Invalid,
		Message: thread.Marshal(message{
			Role: "toolResult", Content: []part{{Type: partText, Text: cut(result.Text, mostResult)}},
		}),
	})
}

// call runs a call of a round. One that can't be run has a result for the model, which may try again.
func (r *reaction) call(ctx context.Context, j Journal, room Room, round, n int) (ToolResult, error) {
	c := j.Rounds[round].Calls[n]
	t, is := r.tool(c.Name)
	switch {
	case !is || !slices.Contains(j.Tools, c.Name):
		return ToolResult{Text: "there is no tool " + c.Name, IsError: true, Invalid: true}, nil
	case c.Broken != "":
		text := "the arguments are no JSON object, or were cut: call it again"
		return ToolResult{Text: text, IsError: true, Invalid: true}, nil
	case t.Most > 0 && j.before(c.Name, round, n) >= t.Most:
		text := fmt.Sprintf("%s may be called %d times in one answer, and was", t.Name, t.Most)
		return ToolResult{Text: text, IsError: true}, nil
	case t.Acts && !j.trusted(room):
		return ToolResult{Text: "this needs a human of the house who asked for it, and is a member", IsError: true}, nil
	}
	return t.Run(ctx, ToolCall{
		Key: thread.CallKey(j.ID, round, n), Thread: r.worker.id, Reaction: j.ID, Bot: j.Bot, Room: room,
		Depth: j.Depth, Root: j.Root, Arguments: c.Arguments,
	})
}

// later waits until a call that can't be run is to be run again, with the same key. Where none could be run for too
// long the call is given up: what it has begun is ended where that can be, and its result is on the thread, so that no
// host runs it again. Rows that refuse this host's version are an error: hosts of another one continue.
func (r *reaction) later(ctx context.Context, j Journal, round int, failed *callError) error {
	if _, is := errors.AsType[*rows.SchemaError](failed.error); is {
		return failed
	}
	c := j.Rounds[round].Calls[failed.call]
	log := r.Log.With("thread", r.worker.id, "reaction", r.id, "tool", c.Name, "error", failed.error)
	if r.failing.IsZero() {
		r.failing = time.Now()
		log.Warn("a call can't be run, and is tried again")
	}
	if time.Since(r.failing) < giveUp {
		pause.For(ctx, callsAgain)
		return nil
	}
	log.Warn("a call is given up")
	if err := r.stopCall(ctx, r.worker.id, j, round, failed.call); err != nil {
		return err
	}
	text := "This could not be done for two minutes, since the host does not reach what it needs: try later."
	if t, _ := r.tool(c.Name); t.Acts {
		text += " It may have had its effect, or a part of it: look before you call it again."
	}
	return r.post(ctx, resultOf(j, round, failed.call, ToolResult{Text: text, IsError: true}))
}

// stopCalls ends what the calls without a result have begun. The reaction ends next.
func (h *Host) stopCalls(ctx context.Context, id string, j Journal) error {
	n := len(j.Rounds) - 1
	if n < 0 {
		return nil
	}
	for i := range j.Rounds[n].Calls {
		if j.Rounds[n].Results[i] {
			continue
		}
		if err := h.stopCall(ctx, id, j, n, i); err != nil {
			return err
		}
	}
	return nil
}

// stopCall ends what a call has begun, where its tool can.
func (h *Host) stopCall(ctx context.Context, id string, j Journal, round, n int) error {
	t, is := h.tool(j.Rounds[round].Calls[n].Name)
	if !is || t.Stop == nil {
		return nil
	}
	err := t.Stop(ctx, ToolCall{Key: thread.CallKey(j.ID, round, n), Thread: id, Reaction: j.ID, Bot: j.Bot})
	if err != nil {
		return fmt.Errorf("stop %s: %w", t.Name, err)
	}
	return nil
}

// before counts the calls of a tool in front of the n-th call of a round.
func (j *Journal) before(name string, round, n int) (count int) {
	for i, r := range j.Rounds[:round+1] {
		for k, c := range r.Calls {
			if c.Name == name && (i < round || k < n) {
				count++
			}
		}
	}
	return count
}

// trusted reports whether humans of a room began all chains that the reaction answers.
func (j *Journal) trusted(room Room) bool {
	return len(j.roots) > 0 && !slices.ContainsFunc(j.roots, func(r *thread.Root) bool {
		return r == nil || !room.human(r.AuthorID)
	})
}
