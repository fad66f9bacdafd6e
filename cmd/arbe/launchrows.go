package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
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
	h, err := (&thread.Client{Base: thread.BaseURL(url), HTTP: c.http}).Health(ctx)
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
	client, err := h.client(lease.Stream(box))
	return lease.OnStream{Client: client}, err
}

// noRows is the error of a command that needs the row of a box.
func noRows(box sandbox.Ref) error {
	return &cmdline.Exit{Status: exitConfig, Cause: fmt.Errorf(
		"%s has a row in a database, which tells who needs it: set ARBE_DATABASE or use --database", box)}
}

// launchRow is the row of a launch's thread, and what it means for the launch.
type launchRow struct {
	db          *control.DB
	thread      rows.Thread
	environment string // of the box; its secrets are the agent's
	provider    string // of the box

	asked struct{ house, environment, agent string } // ids that the flags stand for; "" for none
}

// rowOf returns the row of the task's thread, made where it is missing and the flags name a house. It is nil for a
// launch without rows. Nothing is on the thread yet: an error leaves at most an idle row.
func (h host) rowOf(c *cli.Context, t *launch.Task) (*launchRow, error) {
	if h.database == nil {
		return nil, nil
	}
	db, err := h.database(c.Context)
	if err != nil {
		return nil, databaseExit(err)
	}
	r := &launchRow{db: db}
	is := false
	if err = r.ask(c, t.Thread); err == nil {
		is, err = r.find(c.Context, t)
	}
	if err == nil && is {
		t.Environment = r.asked.environment
		err = r.box(c)
	}
	if err != nil {
		return nil, databaseExit(fmt.Errorf("the rows of thread %s: %w", t.Thread, err))
	}
	if !is {
		return nil, nil
	}
	return r, nil
}

// ask finds what the flags stand for: names, ids or beginnings of ids. Without a house it is the thread's; without that
// an environment is named by its id alone.
func (r *launchRow) ask(c *cli.Context, id string) error {
	s := r.db.Host()
	if typed := c.String("house"); typed != "" {
		h, err := findHouse(c.Context, s, typed)
		if err != nil {
			return err
		}
		r.asked.house = h.ID
	}
	if typed := c.String("agent"); typed != "" {
		a, err := findAgent(c.Context, s, typed)
		if err != nil {
			return err
		}
		r.asked.agent = a.ID
	}
	typed := c.String("environment")
	if typed == "" {
		return nil
	}
	house := r.asked.house
	if house == "" {
		t, err := s.Thread(c.Context, id)
		if rows.Present(err) != nil {
			return err
		}
		house = t.House
	}
	e, err := s.Environment(c.Context, typed) // also one of another house, which fits refuses
	if house != "" && (r.asked.house != "" || errors.Is(err, rows.ErrAbsent)) {
		e, err = findEnvironment(c.Context, s, house, typed)
	}
	switch {
	case err != nil:
		return err
	case e.ArchivedAt != nil:
		return fmt.Errorf("the environment %s: %w", typed, rows.ErrArchived)
	}
	r.asked.house, r.asked.environment = e.House, e.ID
	return nil
}

// find reads the thread's row, or makes it in the house of the flags. is reports whether there is a row then.
func (r *launchRow) find(ctx context.Context, t *launch.Task) (is bool, err error) {
	host, house := r.db.Host(), r.asked.house
	r.thread, err = host.Thread(ctx, t.Thread)
	switch {
	case err == nil:
		return true, r.fits(ctx, house, t.Harness, r.asked.agent)
	case !errors.Is(err, rows.ErrAbsent) || house == "":
		return false, rows.Present(err)
	}
	n := rows.NewThread{ID: t.Thread, House: house, Environment: r.asked.environment}
	if n.Agent, err = r.driver(ctx, house, t.Harness, r.asked.agent); err != nil {
		return false, err
	}
	if t.Parent != nil {
		parent, err := host.Thread(ctx, t.Parent.ThreadID)
		if err == nil && parent.House == house {
			n.Parent = parent.ID
		} else if rows.Present(err) != nil {
			return false, err
		}
	}
	r.thread, err = host.CreateThread(ctx, n)
	if errors.Is(err, rows.ErrTaken) { // another launch made it
		if r.thread, err = host.Thread(ctx, t.Thread); err == nil {
			err = r.fits(ctx, house, t.Harness, r.asked.agent)
		}
	}
	return err == nil, err
}

// fits returns an error where a thread's row is of another house, a chat, or driven by another bot than is asked for.
func (r *launchRow) fits(ctx context.Context, house, harness, agent string) error {
	switch {
	case house != "" && r.thread.House != house:
		return fmt.Errorf("the thread is of the house %s", r.thread.House)
	case r.thread.Agent == "":
		return errors.New("the thread is a chat: no bot drives it")
	case agent != "" && agent != r.thread.Agent:
		return fmt.Errorf("the thread is driven by %s", r.thread.Agent)
	}
	bot, err := r.db.Host().Agent(ctx, r.thread.Agent)
	if err == nil && bot.Runtime != harness {
		return fmt.Errorf("the thread is driven by the bot %s: use --harness %s", bot.ID, bot.Runtime)
	}
	return err
}

// driver returns the house's bot that drives a new thread: the named one, or the oldest of the harness.
func (r *launchRow) driver(ctx context.Context, house, harness, named string) (string, error) {
	bots, err := r.db.Host().Drivers(ctx, house, harness)
	if err != nil {
		return "", err
	}
	for _, b := range bots {
		if named == "" || b.ID == named {
			return b.ID, nil
		}
	}
	if named != "" {
		return "", fmt.Errorf("%s is no bot of the house %s that runs %s", named, house, harness)
	}
	return "", fmt.Errorf("the house %s has no bot that runs %s: add one", house, harness)
}

// box finds the environment and the provider of the thread's box.
func (r *launchRow) box(c *cli.Context) error {
	ctx, host := c.Context, r.db.Host()
	if r.thread.Sandbox != "" {
		b, err := host.Sandbox(ctx, r.thread.Sandbox)
		switch {
		case err == nil && b.Status != rows.BoxDead:
			r.environment, r.provider = b.Environment, b.Provider
			return r.fitsProvider(c)
		case err == nil:
			r.environment = b.Environment
		case rows.Present(err) != nil:
			return err
		}
	}
	if r.asked.environment != "" {
		r.environment = r.asked.environment
	}
	if r.environment == "" {
		r.environment = r.thread.Environment
	}
	if r.environment == "" {
		house, err := host.House(ctx, r.thread.House)
		if err != nil {
			return err
		}
		r.environment = house.DefaultEnvironment
	}
	if r.environment == "" {
		return fmt.Errorf("%w: use --environment", rows.ErrNoRecipe)
	}
	e, err := host.Environment(ctx, r.environment)
	switch {
	case err != nil:
		return err
	case e.ArchivedAt != nil:
		return fmt.Errorf("the environment %s: %w", e.ID, rows.ErrArchived)
	}
	r.provider = e.Runtime
	return r.fitsProvider(c)
}

func (r *launchRow) fitsProvider(c *cli.Context) error {
	if asked := c.String("sandbox"); c.IsSet("sandbox") && asked != r.provider {
		return fmt.Errorf("its sandbox is one of %s, not of %s", r.provider, asked)
	}
	return nil
}

// resolver returns what resolves the boxes of threads with rows.
func (h host) resolver(p provider, client func(id string) *thread.Client, progress func(string)) *resolve.Resolver {
	boxes, _ := h.rows()
	return &resolve.Resolver{Rows: boxes, Provider: p, Client: client, Progress: progress}
}
