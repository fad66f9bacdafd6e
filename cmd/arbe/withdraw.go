package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

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
	db, err := h.database(ctx)
	if err != nil {
		return false, err
	}
	to := h.provision(nil, slog.New(slog.DiscardHandler))
	return to.Withdraw(ctx, control.Queue{DB: db, Host: "withdraw:" + uuid.NewString()}, o)
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
