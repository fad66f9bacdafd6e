package index

import (
	"slices"

	"arbe.0sk.ar/runner/thread"
)

// mostUnread bounds the ids of a thread's pending chats that its state has. Those behind them are counted.
const mostUnread = 100

// unread are a thread's pending chats, as thread.Pending has them, by their ids.
type unread struct {
	IDs   []string     `json:"ids,omitempty"`  // the oldest ones
	More  int          `json:"more,omitempty"` // the number of those behind them, whose ids are forgotten
	Tasks thread.Tasks `json:"tasks,omitzero"` // prompts, some of which are pending
}

func (u *unread) none() bool { return len(u.IDs) == 0 && u.More == 0 && u.Tasks.IsZero() }

func (u *unread) count() int { return len(u.IDs) + u.More + u.Tasks.Waiting() }

// add adds a chat that is no line of a session, if it is input for an agent. plain: it has a text, and neither a run
// nor a session, so that its id decides alone.
func (u *unread) add(id string, payload []byte, plain bool) {
	e := thread.Entry{ID: id, Payload: payload}
	if _, prompt := thread.RunOf(id); prompt {
		if chat, ok := thread.ParsePrompt(e); ok {
			u.Tasks.Add(id, chat.Text)
		}
		return
	}
	if !plain {
		if _, pending := thread.ParseChat(e, ""); !pending {
			return
		}
	}
	if len(u.IDs) < mostUnread && u.More == 0 {
		u.IDs = append(u.IDs, id)
	} else {
		u.More++
	}
}

// deliver drops the chats that a line delivers.
func (u *unread) deliver(ids []string, all bool) {
	if all {
		*u = unread{}
	}
	for _, id := range ids {
		u.drop(id)
	}
}

// drop drops a chat. One whose id is not known is one of those behind, unless it is a run's prompt.
func (u *unread) drop(id string) {
	if i := slices.Index(u.IDs, id); i >= 0 {
		u.IDs = slices.Delete(u.IDs, i, i+1)
	} else if _, prompt := thread.RunOf(id); prompt {
		u.Tasks.Drop(id)
	} else if id != "" {
		u.More = max(0, u.More-1)
	}
}
