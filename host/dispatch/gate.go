package dispatch

import (
	"context"
	"encoding/json"
	"slices"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
)

// Limits of a gate.
const (
	gateEntries = 10 // the newest ones
	gateTokens  = 200
)

// decideTool is the tool by which a gate answers.
var decideTool = model.Tool{
	Name:        "decide",
	Description: "Say whether the bot should answer now: it should where it was asked, or where it can help.",
	Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["respond","why"],` +
		`"properties":{"respond":{"type":"boolean"},"why":{"type":"string"}}}`),
}

// gate asks a cheap model whether the bot should answer what does not name it. If not, or where the model gives no
// clear answer, it ends the reaction.
func (r *reaction) gate(ctx context.Context, j Journal, all []thread.Entry) (bool, error) {
	room, _, _, err := r.Room(ctx, r.worker.id)
	if err != nil {
		return false, err
	}
	asked := j
	if room.GateModel != "" {
		asked.Provider, asked.Model = room.GateProvider, room.GateModel
	}
	api, err := r.Model(ctx, r.worker.id, asked.Provider)
	if err != nil {
		return false, r.decline(ctx, j, err)
	}
	q := Context(newest(all, j), &asked, room, []model.Tool{decideTool}, contextTokens)
	q.MaxTokens, q.Must = gateTokens, decideTool.Name
	reply, err := api.Stream(ctx, q, func(model.Event) {})
	if err != nil {
		return false, r.decline(ctx, j, err)
	}
	for _, p := range reply.Parts {
		var args struct{ Respond bool }
		if p.Call != nil && p.Call.Name == decideTool.Name && json.Unmarshal(p.Call.Arguments, &args) == nil &&
			args.Respond {
			return true, nil
		}
	}
	return false, r.decline(ctx, j, nil)
}

// newest returns the newest entries of a thread, answers of others to the same triggers among them, and the triggers.
func newest(all []thread.Entry, j Journal) (some []thread.Entry) {
	old := max(0, len(all)-gateEntries)
	for i, e := range all {
		if i >= old || slices.Contains(j.Chats, e.ID) {
			some = append(some, e)
		}
	}
	return some
}

// decline ends a reaction that its gate did not let pass. cause is why the gate could not be asked.
func (r *reaction) decline(ctx context.Context, j Journal, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cause != nil {
		r.Log.Info("a gate is not answered", "thread", r.worker.id, "reaction", j.ID, "error", cause)
	}
	return r.post(ctx, r.board.endOf(j, thread.ReactionDeclined, "", ""))
}
