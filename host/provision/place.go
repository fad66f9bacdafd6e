package provision

import (
	"context"
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
)

// Asked is a caller's choice of a run's place, in ids; "" leaves the choice.
type Asked struct {
	House       string // in which a thread without a row gets one
	Agent       string // the bot that drives
	Environment string // of a new box
	Provider    string // by its name, of the box
}

// Place returns where a task goes, and gives it the model and the instructions of its bot. The thread's row is made
// where it is missing and a house is asked for. The place of a thread without a row has no House. Nothing is on the
// thread yet: an error leaves at most an idle row.
func (h *Host) Place(ctx context.Context, t *launch.Task, a Asked) (rows.Place, error) {
	return h.onRows(ctx, t.Thread, func(r Rows) (p rows.Place, err error) {
		driver, err := row(ctx, r, *t, a)
		if err != nil || driver == "" {
			return p, err
		}
		t.Environment = a.Environment
		if p, err = place(ctx, r, t.Thread, a); err != nil {
			return p, err
		}
		return p, drive(ctx, r, t, driver)
	})
}

// onRows returns the place that f finds for a thread; the zero one without a database.
func (h *Host) onRows(ctx context.Context, thread string, f func(Rows) (rows.Place, error)) (p rows.Place, err error) {
	if h.Rows == nil {
		return p, nil
	}
	r, err := h.Rows(ctx)
	if err != nil {
		return p, err
	}
	if p, err = f(r); err != nil {
		err = fmt.Errorf("the rows of thread %s: %w", thread, err)
	}
	return p, err
}

// place returns where the next run or command of a thread with a row goes.
func place(ctx context.Context, r Rows, thread string, a Asked) (rows.Place, error) {
	p, err := r.Place(ctx, thread, a.Environment)
	switch {
	case err != nil:
		return p, err
	case p.Environment.ID == "":
		return p, fmt.Errorf("%w: use --environment", rows.ErrNoRecipe)
	case p.Environment.ArchivedAt != nil && !p.Live:
		return p, fmt.Errorf("the environment %s: %w", p.Environment.ID, rows.ErrArchived)
	case a.Provider != "" && a.Provider != p.Provider:
		return p, fmt.Errorf("its sandbox is one of %s, not of %s", p.Provider, a.Provider)
	}
	return p, nil
}

// row finds the row of a task's thread, or makes it in the house that is asked for. It returns the bot that drives the
// thread; "" where there is no row.
func row(ctx context.Context, r Rows, t launch.Task, a Asked) (driver string, err error) {
	was, err := r.Thread(ctx, t.Thread)
	switch {
	case err == nil:
		return was.Agent, fits(ctx, r, was, t.Harness, a)
	case !errors.Is(err, rows.ErrAbsent) || a.House == "":
		return "", rows.Present(err)
	}
	all, err := r.Drivers(ctx, a.House, t.Harness)
	if err != nil {
		return "", err
	}
	n := rows.NewThread{ID: t.Thread, House: a.House, Environment: a.Environment}
	if n.Agent, err = driverOf(all, a, t.Harness); err != nil {
		return "", err
	}
	if t.Parent != nil {
		parent, err := r.Thread(ctx, t.Parent.ThreadID)
		if err == nil && parent.House == a.House {
			n.Parent = parent.ID
		} else if rows.Present(err) != nil {
			return "", err
		}
	}
	_, err = r.CreateThread(ctx, n)
	if errors.Is(err, rows.ErrTaken) { // another launch made it
		if was, err = r.Thread(ctx, t.Thread); err == nil {
			n.Agent, err = was.Agent, fits(ctx, r, was, t.Harness, a)
		}
	}
	return n.Agent, err
}

// fits returns an error where a thread's row is of another house, a chat, or driven by another bot than is asked for.
func fits(ctx context.Context, r Rows, t rows.Thread, harness string, a Asked) error {
	switch {
	case a.House != "" && t.House != a.House:
		return fmt.Errorf("the thread is of the house %s", t.House)
	case t.Agent == "":
		return errors.New("the thread is a chat: no bot drives it")
	case a.Agent != "" && a.Agent != t.Agent:
		return fmt.Errorf("the thread is driven by %s", t.Agent)
	}
	bot, err := r.Agent(ctx, t.Agent)
	if err == nil && bot.Runtime != harness {
		return fmt.Errorf("the thread is driven by the bot %s: use --harness %s", bot.ID, bot.Runtime)
	}
	return err
}

// driverOf returns the bot that drives a new thread: the one that is asked for, or the first of the house's bots of the
// harness.
func driverOf(bots []rows.Agent, a Asked, harness string) (string, error) {
	for _, b := range bots {
		if a.Agent == "" || b.ID == a.Agent {
			return b.ID, nil
		}
	}
	if a.Agent != "" {
		return "", fmt.Errorf("%s is no bot of the house %s that runs %s", a.Agent, a.House, harness)
	}
	return "", fmt.Errorf("the house %s has no bot that runs %s: add one", a.House, harness)
}
