package main

import (
	"context"
	"time"

	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// others reads what is shown of the threads that another thread names: as much as this program may see of them.
type others struct {
	command
	rows func(context.Context) (*control.DB, error) // nil without a database
}

// otherWait bounds the wait for one of them: what names it is shown without it, too.
const otherWait = 2 * time.Second

// summary returns a thread as it is now, and the server's time; false where that is not known, as with a token of the
// other thread alone.
func (o others) summary(ctx context.Context, id string) (v thread.Summary, now time.Time, known bool) {
	ctx, cancel := context.WithTimeout(ctx, otherWait)
	defer cancel()
	cl, err := o.client(id, token.ScopeRead)
	if err != nil {
		return v, now, false
	}
	cl.Log = nil // who reads the thread itself reports that the server is away
	v, now, err = cl.Summary(ctx)
	if client.NoThread(err) && !client.Gone(err) { // it has no entry yet
		v, err = thread.Summary{ID: id, Status: thread.StatusIdle}, nil
	}
	return v, now, err == nil
}

// name returns the name that the row of a thread has; "" for none.
func (o others) name(ctx context.Context, id string) string {
	if o.rows == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, otherWait)
	defer cancel()
	db, err := o.rows(ctx)
	if err != nil {
		return "" // program.names has reported it
	}
	r, err := db.Room(ctx, id)
	if err != nil {
		return ""
	}
	return r.Thread.Name
}

// title returns the name of a thread, else its title; "" where it is not known.
func (o others) title(ctx context.Context, id string) string {
	if name := o.name(ctx, id); name != "" {
		return name
	}
	v, _, _ := o.summary(ctx, id)
	return v.Title
}

// task returns the state of a task's thread for people; "" where it is not known.
func (o others) task(ctx context.Context, id string) string {
	v, now, known := o.summary(ctx, id)
	if !known {
		return ""
	}
	state, _ := listing.StateOf(v, now)
	if state == thread.StatusIdle {
		return "waiting to start"
	}
	return state
}

// other returns a thread for an exported file, which other people may get: with its name, but not with its title, which
// is the beginning of its first chat. It returns false where nothing is known of it.
func (o others) other(ctx context.Context, id string) (thread.Summary, bool) {
	v, _, known := o.summary(ctx, id)
	v.ID, v.Title = id, o.name(ctx, id)
	return v, known || v.Title != ""
}
