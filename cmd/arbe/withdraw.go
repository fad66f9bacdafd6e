package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// withdrawLease is how long a host that died while it withdrew a task keeps it from the others.
const withdrawLease = 20 * time.Second

// settle settles a thread. A task of it that waits, and was cancelled, ends first, so that its parent gets that end.
func (h host) settle(ctx context.Context, r *reconcile.Reconciler, id string) (reconcile.State, error) {
	_, err := h.withdraw(ctx, id)
	s, rerr := r.Thread(ctx, id)
	return s, errors.Join(err, rerr)
}

// queued returns the task of a thread that waits for a host to launch it, or that a host launches; false for none.
func (h host) queued(ctx context.Context, id string) (o rows.Task, is bool, err error) {
	if h.database == nil {
		return o, false, nil
	}
	db, err := h.database(ctx)
	if err == nil {
		o, err = control.Queue{DB: db}.Queued(ctx, id)
	}
	if errors.Is(err, rows.ErrAbsent) {
		return o, false, nil
	}
	return o, err == nil, err
}

// withdraw ends the task of a thread that waits, if the thread asks for that. One that a host has is left to that host:
// done is false then.
func (h host) withdraw(ctx context.Context, id string) (done bool, err error) {
	o, is, err := h.queued(ctx, id)
	if err != nil || !is {
		return false, err
	}
	client, err := h.client(id)
	if err != nil {
		return false, err
	}
	l := launches{host: h, logger: slog.New(slog.DiscardHandler)}
	launcher := &launch.Launcher{Client: client}
	asked, err := launcher.Cancelled(ctx, l.task(o))
	if err != nil || !asked {
		return false, err
	}
	db, err := h.database(ctx)
	if err != nil {
		return false, err
	}
	q := control.Queue{DB: db, Host: "withdraw:" + uuid.NewString()}
	if o, is, err = q.TakeOne(ctx, id, withdrawLease); err != nil || !is {
		return false, err
	}
	if o.Parent != "" {
		err = l.Announce(ctx, o)
	}
	if err == nil {
		err = remember(h.data, id) // noted before the run exists, so reconcile --all finds it
	}
	if err == nil {
		err = launcher.Withdraw(ctx, l.task(o))
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("end the task of thread %s: %w", id, err), q.PutBack(ctx, id, 0, false))
	}
	return true, q.Done(ctx, id)
}

// cancelTask asks for the end of a task that waits, and ends it unless a host has it: then that one does.
func (h host) cancelTask(ctx context.Context, o rows.Task, author, reason string) (ended bool, err error) {
	client, err := h.client(o.Thread)
	if err != nil {
		return false, err
	}
	if _, err = client.Append(ctx, []thread.Entry{endOf(o.Run(), o.Harness, author, reason)}); err != nil {
		return false, reach(err)
	}
	if _, err = h.withdraw(ctx, o.Thread); rows.IsAway(err) {
		return false, databaseExit(err)
	} else if err != nil {
		return false, reach(err)
	}
	fold, _, err := readSignals(ctx, client) // the server may have ended it before
	if err != nil || statusOf(fold, o.Run()) != thread.StatusCancelled {
		return false, reach(err)
	}
	s, err := h.reconciler().Thread(ctx, o.Thread)
	if !s.Open {
		h.forget(o.Thread)
	}
	return true, reach(err)
}
