package main

import (
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// opened returns what opens the database that the flags name, once, for the log of the thread server. It is nil without
// a database. The database is open until the program ends. Callers at the same time share one attempt, each for as long
// as its own context lasts.
//
// Where a proxy answers for the server, its log is not known, and nothing is compared.
func (c command) opened() func(context.Context) (*control.DB, error) {
	if c.database == "" {
		return nil
	}
	return control.Once(func(ctx context.Context) (*control.DB, error) {
		log, err := c.installation(ctx)
		if err != nil {
			return nil, fmt.Errorf("which log the database has to be of is not known: %w", reach(err))
		}
		db, err := control.Open(ctx, c.database, control.Config{})
		if err != nil {
			return nil, err
		}
		return db.Of(log), nil
	})
}

// installation returns the id of the thread server's log; "" where the server has none.
func (c command) installation(ctx context.Context) (string, error) {
	_, url, err := c.server()
	if err != nil {
		return "", err
	}
	h, err := (&client.Client{Base: thread.BaseURL(url), HTTP: c.http}).Health(ctx)
	return h.Installation, err
}

// rows returns the rows of threads and boxes; false without a database.
func (h host) rows() (control.Boxes, bool) { return control.Boxes{Open: h.database}, h.database != nil }

// leaseOf returns the lease of a box with these labels.
func (h host) leaseOf(box sandbox.Ref, labels map[string]string) (lease.Lease, error) {
	if row := labels[sandbox.LabelRow]; row != "" {
		rows, is := h.rows()
		if !is {
			return nil, noRows(box)
		}
		return rows.Lease(row), nil
	}
	cl, err := h.client(lease.Stream(box))
	return lease.OnStream{Client: cl}, err
}

// noRows is the error of a command that needs the row of a box.
func noRows(box sandbox.Ref) error {
	return &cmdline.Exit{Status: exitConfig, Cause: provision.NoRows(box)}
}

// asked finds what a launch's flags stand for: names, ids or beginnings of ids. Without a house it is the thread's;
// without that an environment is named by its id alone.
func (o order) asked(ctx context.Context, s control.Scope) (a provision.Asked, err error) {
	if o.providerSet {
		a.Provider = o.provider
	}
	if o.house != "" {
		h, err := findHouse(ctx, s, o.house)
		if err != nil {
			return a, err
		}
		a.House = h.ID
	}
	if o.agent != "" {
		bot, err := findAgent(ctx, s, o.agent)
		if err != nil {
			return a, err
		}
		a.Agent = bot.ID
	}
	if o.environment == "" {
		return a, nil
	}
	house := a.House
	if house == "" {
		t, err := s.Thread(ctx, o.Thread)
		if rows.Present(err) != nil {
			return a, err
		}
		house = t.House
	}
	e, err := s.Environment(ctx, o.environment) // also one of another house, which does not fit
	if house != "" && (a.House != "" || errors.Is(err, rows.ErrAbsent)) {
		e, err = findEnvironment(ctx, s, house, o.environment)
	}
	if err == nil && e.ArchivedAt != nil {
		err = fmt.Errorf("the environment %s: %w", o.environment, rows.ErrArchived)
	}
	a.House, a.Environment = e.House, e.ID
	return a, err
}

// environmentFor returns the id of the environment that a person means for a command on a thread; "" for a thread
// without a row, and where none is meant.
func (h host) environmentFor(ctx context.Context, id, typed string) (string, error) {
	if h.database == nil || typed == "" {
		return "", nil
	}
	db, err := h.database(ctx)
	if err != nil {
		return "", err
	}
	e, err := environmentOf(ctx, db.Host(), id, typed)
	if err != nil {
		err = fmt.Errorf("the rows of thread %s: %w", id, err)
	}
	return e, err
}

// environmentOf returns the id of the environment that a person means, of the house of a thread; "" for a thread
// without a row.
func environmentOf(ctx context.Context, s control.Scope, id, typed string) (string, error) {
	t, err := s.Thread(ctx, id)
	if err != nil {
		return "", rows.Present(err)
	}
	e, err := findEnvironment(ctx, s, t.House, typed)
	return e.ID, err
}
