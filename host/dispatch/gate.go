package dispatch

import (
	"context"
	"encoding/json"
	"errors"

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
func (r *reaction) gate(ctx context.Context, j Journal, all notes, room Room) (bool, error) {
	asked := j
	if room.GateModel != "" {
		asked.Provider, asked.Model = room.GateProvider, room.GateModel
	}
	api, err := r.Model(ctx, r.worker.id, asked.Provider)
	if err != nil {
		return false, r.decline(ctx, j, err)
	}
	q := request(all.newest(gateEntries, &j), &asked, room, []model.Tool{decideTool}, contextTokens)
	q.MaxTokens, q.Must = gateTokens, decideTool.Name
	b := billOf(q, asked.Provider, room, 0)
	if _, err = r.paid(j, b); err != nil {
		return false, r.decline(ctx, j, err)
	}
	reply, err := r.send(ctx, api, q, b, j, func(model.Event) {})
	r.context = 0 // of another model's
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

// decline ends a reaction that its gate did not let pass. cause is why the gate could not be asked.
func (r *reaction) decline(ctx context.Context, j Journal, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, failed := errors.AsType[*model.Error](cause)
	if _, unpaid := errors.AsType[*Unpaid](cause); cause != nil && !failed && !unpaid {
		return cause // rows that are away: another try, or another host, asks the gate
	}
	if cause != nil {
		r.Log.Info("a gate is not answered", "thread", r.worker.id, "reaction", j.ID, "error", cause)
	}
	return r.post(ctx, r.end(j, thread.ReactionDeclined, "", ""))
}
