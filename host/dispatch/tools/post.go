package tools

import (
	"context"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// postToThread posts a chat on another thread of the house.
func (h *Host) postToThread() dispatch.Tool {
	t := shown("post_to_thread", "Post a message on another thread of this house. @mention a bot to wake it there.", `{
		"thread": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,128}$"},
		"text": {"type": "string", "minLength": 1, "maxLength": 16384}}`, "thread", "text")
	return dispatch.Tool{Tool: t, Asked: true, Acts: true, Most: 3, Run: taking(t, h.postTo)}
}

type posting struct{ Thread, Text string }

func (h *Host) postTo(ctx context.Context, c dispatch.ToolCall, a posting) (dispatch.ToolResult, error) {
	if a.Thread == c.Thread {
		return failed("this is the thread that you answer on: your reply is posted here")
	}
	r, err := h.rows(ctx, c)
	if err != nil {
		return ended(err)
	}
	t, err := ofHouse(ctx, r, c, a.Thread)
	if err != nil {
		return ended(err)
	}
	if t.Status == rows.ThreadClosed {
		return failed("the thread %s is closed", t.ID)
	}
	if err := h.post(ctx, c, t.ID, a.Text); err != nil {
		return ended(err)
	}
	return result("Posted on the thread %s %q.", t.ID, t.Name)
}

// chat returns the chat that a call posts on another thread.
func chat(c dispatch.ToolCall, text string, via *thread.Via) thread.Entry {
	return thread.NewEntry(c.Key, c.Bot, thread.Chat{Type: thread.TypeChat, Text: text, Via: via})
}
