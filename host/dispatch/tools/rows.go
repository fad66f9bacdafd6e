package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
)

// Rows are the rows as one bot may read and write them. Errors are those of package rows.
type Rows interface {
	// Threads returns a page, the newest first.
	Threads(ctx context.Context, q rows.Query) ([]rows.Thread, error)
	Thread(ctx context.Context, id string) (rows.Thread, error)
	// CreateThread makes a row. It returns rows.ErrTaken for an id that any house has.
	CreateThread(ctx context.Context, n rows.NewThread) (rows.Thread, error)
	// MakeBot makes a bot of a house, as a bot of it. With the same id it may be repeated.
	MakeBot(ctx context.Context, n rows.NewBot) (rows.Agent, error)
}

// errOther is a reason why a call can't be done: its text is for the model. Other errors are the host's.
type errOther string

func (e errOther) Error() string { return string(e) }

// ended returns the result of a call that can't be done, and an error of the host's as it is.
func ended(err error) (dispatch.ToolResult, error) {
	if errors.As(err, new(errOther)) || errors.As(err, new(*rows.Refusal)) {
		return failed("%v", err)
	}
	return dispatch.ToolResult{}, err
}

// rows returns the rows of a call's bot.
func (h *Host) rows(ctx context.Context, c dispatch.ToolCall) (Rows, error) {
	if h.Rows == nil || h.Threads == nil {
		return nil, errOther("this host has no rows of threads")
	}
	return h.Rows(ctx, c.Bot)
}

// ofHouse returns a thread of the house of a call. Where the bot may not see one, or sees it in another house, it is
// absent.
func ofHouse(ctx context.Context, r Rows, c dispatch.ToolCall, id string) (rows.Thread, error) {
	t, err := r.Thread(ctx, id)
	if errors.Is(err, rows.ErrAbsent) || err == nil && t.House != c.Room.HouseID {
		return rows.Thread{}, errOther(fmt.Sprintf("there is no thread %s in this house: list_threads has them", id))
	}
	return t, err
}

// self returns the bot of a call.
func self(c dispatch.ToolCall) (dispatch.Bot, error) {
	i := slices.IndexFunc(c.Room.Bots, func(b dispatch.Bot) bool { return b.ID == c.Bot })
	if i < 0 {
		return dispatch.Bot{}, errOther("you are no member of the house any more")
	}
	return c.Room.Bots[i], nil
}

// botNamed returns the bot of a room with a name, or with an id.
func botNamed(r dispatch.Room, name string) (found dispatch.Bot, err error) {
	name = strings.TrimPrefix(name, "@")
	var names []string
	for _, b := range r.Bots {
		switch {
		case b.ID == name:
			return b, nil
		case strings.EqualFold(b.Name, name) && found.ID != "":
			return found, errOther("several bots of the house have the name " + name + ": give the id of one")
		case strings.EqualFold(b.Name, name):
			found = b
		}
		names = append(names, b.Name)
	}
	if found.ID == "" {
		slices.Sort(names)
		err = errOther("the house has no bot " + name + ". It has: " + strings.Join(names, ", "))
	}
	return found, err
}

// post posts a chat of a call's bot on a thread. One with the call's key that is there already has been posted before.
func (h *Host) post(ctx context.Context, c dispatch.ToolCall, id, text string) error {
	via, ok := c.Via()
	if !ok {
		return errTooDeep
	}
	err := h.Threads(id).Append(ctx, chat(c, text, via))
	switch {
	case err == nil, errors.Is(err, dispatch.ErrTaken):
		return nil
	case errors.Is(err, dispatch.ErrGone):
		return errOther(fmt.Sprintf("the thread %s is deleted", id))
	case errors.Is(err, dispatch.ErrRefused):
		return errOther(err.Error())
	}
	return err
}

// errTooDeep is the reason why a chain of replies ends.
const errTooDeep = errOther("the chain of replies that you answer is as long as it may be: " +
	"no chat can be posted on another thread from here. Say so")
