package tools

import (
	"context"
	"encoding/json"
	"errors"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// createThread makes a thread of the house.
func (h *Host) createThread() dispatch.Tool {
	t := shown("create_thread", "Make a new thread of this house. text is its first message. with names bots "+
		"that answer each message there.", `{
		"name": {"type": "string", "minLength": 1, "maxLength": 200},
		"text": {"type": "string", "maxLength": 16384},
		"with": {"type": "array", "maxItems": 5, "items": {"type": "string"}}}`, "name")
	return dispatch.Tool{Tool: t, Acts: true, Most: 2, Run: taking(t, h.create)}
}

type creating struct {
	Name, Text string
	With       []string
}

func (h *Host) create(ctx context.Context, c dispatch.ToolCall, a creating) (dispatch.ToolResult, error) {
	if _, ok := c.Via(); !ok && a.Text != "" {
		return ended(errTooDeep)
	}
	config := rows.ThreadConfig{Dispatch: rows.ThreadDispatch{PerAgent: map[string]rows.Reacting{}}}
	for _, name := range a.With {
		b, err := botNamed(c.Room, name)
		if err != nil {
			return ended(err)
		}
		config.Dispatch.PerAgent[b.ID] = rows.Reacting{TriggerMode: rows.ModeAlways}
	}
	data, err := json.Marshal(config)
	if err != nil {
		return dispatch.ToolResult{}, err
	}
	r, err := h.rows(ctx, c)
	if err != nil {
		return ended(err)
	}
	n := rows.NewThread{ID: c.Key, House: c.Room.HouseID, Name: a.Name, Config: data}
	if _, err = r.CreateThread(ctx, n); errors.Is(err, rows.ErrTaken) {
		_, err = ofHouse(ctx, r, c, c.Key) // made before
	}
	if err != nil {
		return ended(err)
	}
	if a.Text == "" {
		return result("Made the thread %s %q.", c.Key, a.Name)
	}
	if err := h.post(ctx, c, c.Key, a.Text); err != nil {
		return ended(err)
	}
	return result("Made the thread %s %q, and posted its first message.", c.Key, a.Name)
}
