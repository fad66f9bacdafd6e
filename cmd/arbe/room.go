package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// room is a thread with the bots of its house, as the rows have them.
type room struct {
	dispatch.Room
	since time.Time         // what is older is no trigger
	names map[string]string // of the members of its house, by their ids
}

// room returns the room of a thread; nil without a database, for a thread without a row, and where the bots of its
// house don't answer.
func (h host) room(ctx context.Context, id string) (*room, error) {
	if h.database == nil {
		return nil, nil
	}
	db, err := h.database(ctx)
	if err != nil {
		return nil, databaseExit(err)
	}
	return roomOf(ctx, db, id)
}

func roomOf(ctx context.Context, db *control.DB, id string) (*room, error) {
	r, err := db.Room(ctx, id)
	if err != nil {
		return nil, databaseExit(rows.Present(err))
	}
	if r.Since.IsZero() {
		return nil, nil
	}
	x := &room{Room: dispatch.RoomOf(r), since: r.Since, names: namesOf(r)}
	return x, nil
}

// name returns what a reader calls a bot.
func (r *room) name(id string) string { return view.Visible(view.BotName(id, r.known(id))) }

// mentions returns the ids of the bots of a room that a text names, and the names in it that several of them have.
func mentions(text string, of rows.Room) (ids, shared []string) {
	return dispatch.Mentions(text, dispatch.RoomOf(of).Bots)
}

// decides returns what a host would decide on a chat, as far as the rows alone have it; nil without rows.
func (r *room) decides(threadID string, chat thread.Entry, text string) *thread.Decided {
	if r == nil || r.Closed {
		return nil
	}
	t := dispatch.Trigger{ID: chat.ID, Author: chat.AuthorID, At: chat.Time(), Text: text}
	d := dispatch.NewState(threadID, r.since).Select(t, r.Room)
	return &d
}

// unanswered returns why no bot answers a chat, from the decision on it.
func (r *room) unanswered(d thread.Decided) string {
	var why []string
	for _, c := range d.Bots {
		if c.Decision == thread.DecisionSkip {
			why = append(why, fmt.Sprintf("%s was not asked: %s", r.name(c.AgentID), view.Skipped(c.Reason)))
		}
	}
	if len(why) == 0 {
		return "no bot answers it: name one, as @Name"
	}
	return "no bot answers it: " + strings.Join(why, "; ")
}

// reacting returns the bots that a decision lets react.
func reacting(d thread.Decided) []string { return (&dispatch.Trace{Decided: &d}).Reacting() }

// driven reports whether a decision leaves the trigger to the runs of a driver.
func driven(d thread.Decided) bool {
	return slices.ContainsFunc(d.Bots, func(c thread.Choice) bool { return c.Reason == thread.ReasonDriver })
}

// namesWait bounds the wait for the names of a thread's authors: it is shown without them, too.
const namesWait = 5 * time.Second

// names returns a function that returns the name of a thread's author, "" where the rows of open don't have it. open is
// nil without a database.
func (p *program) names(
	ctx context.Context, open func(context.Context) (*control.DB, error), id string,
) func(author string) string {
	var known map[string]string
	if open != nil {
		ctx, cancel := context.WithTimeout(ctx, namesWait)
		defer cancel()
		db, err := open(ctx)
		if err == nil {
			var r rows.Room
			r, err = db.Room(ctx, id)
			known, err = namesOf(r), rows.Present(err)
		}
		if err != nil {
			fmt.Fprintf(p.stderr, "arbe: authors stand by their ids, for their names can't be read: %v\n", err)
		}
	}
	return func(author string) string { return known[author] }
}

// namesOf returns the names of the members of a thread's house by their ids.
func namesOf(r rows.Room) map[string]string {
	names := map[string]string{}
	for _, b := range r.Bots {
		names[b.ID] = b.Name
	}
	for _, h := range r.Humans {
		names[h.ID] = h.Name
	}
	return names
}
