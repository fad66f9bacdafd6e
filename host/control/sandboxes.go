package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

const sandboxColumns = `id, house_id as house, environment_id as environment, provider,
	coalesce(provider_ref, '') as ref, ephemeral, status, pending_until, created_at, destroyed_at`

// Sandboxes returns a house's sandboxes that are not dead, or whose machine is not known to be gone, the newest first.
func (s Scope) Sandboxes(ctx context.Context, house string) (all []rows.Box, err error) {
	err = s.tx(ctx, "list sandboxes of house "+house, func(tx pgx.Tx) error {
		all, err = many[rows.Box](ctx, tx, `select `+sandboxColumns+` from sandboxes
			where house_id = $1 and (status <> 'dead' or destroyed_at is null) order by created_at desc, id`, house)
		return err
	})
	return all, err
}

// Sandbox returns a sandbox.
func (s Scope) Sandbox(ctx context.Context, id string) (b rows.Box, err error) {
	err = s.tx(ctx, "read sandbox "+id, func(tx pgx.Tx) error {
		b, err = one[rows.Box](ctx, tx, "sandbox", `select `+sandboxColumns+` from sandboxes where id = $1`, id)
		return err
	})
	return b, err
}

// Want is what Resolve needs to make a sandbox.
type Want struct {
	Environment string        // outranks the thread's and the house's default
	Ephemeral   bool          // it is made for one run
	Patience    time.Duration // for the machine to be live. Default 15 min
}

// Resolution is the sandbox of a thread.
type Resolution struct {
	Sandbox rows.Box
	Made    bool     // the caller has to make its machine, and to report it by Live
	From    string   // the dead sandbox that it replaces; "" where there was none
	Threads []string // that were repointed from the dead one: each gets a signal
}

// mostRaces bounds how often a transaction looks again at a thread whose sandbox changes under it.
const mostRaces = 10

var errRaced = errors.New("the thread's sandbox has changed")

// raced runs f again while it returns errRaced.
func raced(f func() error) error {
	for range mostRaces {
		if err := f(); !errors.Is(err, errRaced) {
			return err
		}
	}
	return fmt.Errorf("%w: the thread's sandbox changes all the time", rows.ErrBusy)
}

// Resolve returns a thread's sandbox. Where it has none or a dead one, Resolve makes the row of a new one, pending, and
// repoints each thread of the dead one to it. Of many callers at once one makes it. The order of locks, here and
// elsewhere, is: sandbox, then threads.
func (s Scope) Resolve(ctx context.Context, thread string, w Want) (r Resolution, err error) {
	if w.Patience == 0 {
		w.Patience = 15 * time.Minute
	}
	err = raced(func() error {
		return s.tx(ctx, "resolve the sandbox of thread "+thread, func(tx pgx.Tx) error {
			r = Resolution{}
			b, err := lockBox(ctx, tx, thread, "for update")
			if err != nil {
				return err
			}
			if b != nil && b.Status != rows.BoxDead {
				r.Sandbox = *b
				return nil
			}
			return r.make(ctx, tx, thread, b, w)
		})
	})
	return r, err
}

// make makes the row of a thread's sandbox, in place of a dead one or of none.
func (r *Resolution) make(ctx context.Context, tx pgx.Tx, thread string, dead *rows.Box, w Want) error {
	e, err := recipe(ctx, tx, thread, w.Environment, dead)
	if err != nil {
		return err
	}
	r.Sandbox, err = one[rows.Box](ctx, tx, "sandbox", `
		insert into sandboxes (house_id, environment_id, provider, ephemeral, pending_until)
		values ($1, $2, $3, $4, now() + $5::interval) returning `+sandboxColumns,
		e.House, e.ID, e.Runtime, w.Ephemeral, w.Patience)
	if err != nil {
		return err
	}
	r.Made = true
	if dead == nil {
		r.Threads = []string{thread}
		return exec(ctx, tx, "thread", `update threads set sandbox_id = $2 where id = $1`, thread, r.Sandbox.ID)
	}
	r.From = dead.ID
	r.Threads, err = column[string](ctx, tx,
		`update threads set sandbox_id = $2 where sandbox_id = $1 returning id`, dead.ID, r.Sandbox.ID)
	return err
}

// recipe returns the environment of a thread's next sandbox: the wanted one, the dead sandbox's, the thread's, its
// house's default. It returns rows.ErrNoRecipe and rows.ErrArchived.
func recipe(ctx context.Context, tx pgx.Tx, thread, wanted string, dead *rows.Box) (rows.Environment, error) {
	if wanted == "" && dead != nil {
		wanted = dead.Environment
	}
	ids, err := column[*string](ctx, tx, `
		select coalesce(nullif($2, ''), t.environment_id, h.default_environment_id)
		from threads t join houses h on h.id = t.house_id where t.id = $1`, thread, wanted)
	if err != nil {
		return rows.Environment{}, err
	}
	if len(ids) == 0 || ids[0] == nil {
		return rows.Environment{}, rows.Refuse(rows.ErrNoRecipe, "thread "+thread)
	}
	e, err := one[rows.Environment](ctx, tx, "environment",
		`select `+environmentColumns+` from environments where id = $1 for share`, *ids[0])
	if err == nil && e.ArchivedAt != nil {
		return e, rows.Refuse(rows.ErrArchived, "environment "+e.ID)
	}
	return e, err
}

// lockBox locks a thread's sandbox by a clause, and then the thread. It returns nil where the thread has none.
func lockBox(ctx context.Context, tx pgx.Tx, thread, clause string) (*rows.Box, error) {
	ids, err := column[*string](ctx, tx, `select sandbox_id from threads where id = $1`, thread)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, rows.Refuse(rows.ErrAbsent, "thread")
	}
	var b *rows.Box
	if ids[0] != nil {
		row, err := one[rows.Box](ctx, tx, "sandbox",
			`select `+sandboxColumns+` from sandboxes where id = $1 `+clause, *ids[0])
		if errors.Is(err, rows.ErrAbsent) {
			return nil, errRaced // deleted since
		} else if err != nil {
			return nil, err
		}
		b = &row
	}
	now, err := column[*string](ctx, tx, `select sandbox_id from threads where id = $1 for update`, thread)
	switch {
	case err != nil:
		return nil, err
	case len(now) == 0:
		return nil, rows.Refuse(rows.ErrAbsent, "thread")
	case (now[0] == nil) != (ids[0] == nil) || now[0] != nil && *now[0] != *ids[0]:
		return nil, errRaced
	}
	return b, nil
}

// Live reports the machine of a pending sandbox. It returns rows.ErrDeadBox where the sandbox has expired: the caller
// deletes the machine. Repeating it changes nothing.
func (s Scope) Live(ctx context.Context, id, ref string) error {
	return s.tx(ctx, "report the machine of sandbox "+id, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update sandboxes set status = 'live', provider_ref = $2, live_at = now()
			where id = $1 and (status = 'pending' or status = 'live' and provider_ref = $2)`, id, ref)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		if _, err := one[rows.Box](ctx, tx, "sandbox",
			`select `+sandboxColumns+` from sandboxes where id = $1`, id); err != nil {
			return err
		}
		return rows.Refuse(rows.ErrDeadBox, "sandbox "+id)
	})
}

// Expire declares sandboxes dead that are pending for too long, and returns how many. It removes holds that have
// expired.
func (s Scope) Expire(ctx context.Context) (n int64, err error) {
	err = s.tx(ctx, "expire sandboxes", func(tx pgx.Tx) error {
		late, err := column[string](ctx, tx, `update sandboxes set status = 'dead'
			where status = 'pending' and pending_until < now() returning id`)
		if err != nil {
			return err
		}
		n = int64(len(late))
		_, err = tx.Exec(ctx, `delete from sandbox_holds
			where sandbox_id = any ($1) or expires_at < clock_timestamp()`, late)
		return err
	})
	return n, err
}
