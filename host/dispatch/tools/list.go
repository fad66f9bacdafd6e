package tools

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// usualPage is how many threads or entries a result has where a call names no number.
const usualPage = 20

// listThreads lists threads of the house.
func (h *Host) listThreads() dispatch.Tool {
	t := shown("list_threads", "List threads of this house, the newest first. query is a part of the name.", `{
		"query": {"type": "string", "maxLength": 200},
		"status": {"enum": ["idle", "running", "completed", "failed", "cancelled"]},
		"limit": {"type": "integer", "minimum": 1, "maximum": 50}}`)
	return dispatch.Tool{Tool: t, Run: taking(t, h.list)}
}

type listing struct {
	Query, Status string
	Limit         int
}

func (h *Host) list(ctx context.Context, c dispatch.ToolCall, a listing) (dispatch.ToolResult, error) {
	r, err := h.rows(ctx, c)
	if err != nil {
		return ended(err)
	}
	q := rows.Query{House: c.Room.HouseID, Name: a.Query, Limit: cmp.Or(a.Limit, usualPage)}
	if a.Status != "" {
		q.Statuses = []string{a.Status}
	}
	all, err := r.Threads(ctx, q)
	if err != nil {
		return ended(err)
	}
	var b strings.Builder
	for _, t := range all {
		line, err := h.line(ctx, c, t)
		if err != nil {
			return dispatch.ToolResult{}, err
		}
		b.WriteString(line)
	}
	if b.Len() == 0 {
		return result("No thread of the house is like that.")
	}
	return result("%s", b.String())
}

// line is the line of a thread in a list.
func (h *Host) line(ctx context.Context, c dispatch.ToolCall, t rows.Thread) (string, error) {
	status := t.Status
	if status == rows.ThreadOpen {
		status = rows.ThreadIdle
	}
	line := fmt.Sprintf("%s %q %s", t.ID, t.Name, status)
	if t.ID == c.Thread {
		line += ", this thread"
	}
	if h.Last == nil {
		return line + "\n", nil
	}
	last, err := h.Last(ctx, t.ID)
	if err == nil && !last.IsZero() {
		line += ", last entry " + last.UTC().Format("2006-01-02 15:04")
	}
	return line + "\n", err
}
