package control

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// ErrNotLeading is errNotLeading.
var ErrNotLeading = errNotLeading

// Leader is a projector that writes, step by step.
type Leader struct{ l *leader }

// Lead makes a projector the one that writes.
func (p *Projector) Lead(ctx context.Context) (Leader, error) {
	l, err := p.lead(ctx)
	return Leader{l}, err
}

// Sync projects what has changed.
func (l Leader) Sync(ctx context.Context) error { return l.l.sync(ctx) }

// Compare projects all rows that differ from the log.
func (l Leader) Compare(ctx context.Context) error { return l.l.compare(ctx, false) }

// Sweep projects the rows without a summary.
func (l Leader) Sweep(ctx context.Context) error { return l.l.compare(ctx, true) }

// Close ends the lead.
func (l Leader) Close() { l.l.close() }

// StoreOf returns a store whose database is open.
func StoreOf(db *DB) *Store {
	st := new(Store)
	st.db.Store(db)
	return st
}

// What follows makes and reads the states of rows that tests begin with.

// Sandboxes returns a house's sandboxes that are not dead, or whose machine is not known to be gone, the newest first.
func (s Scope) Sandboxes(ctx context.Context, house string) (all []rows.Box, err error) {
	err = s.tx(ctx, "list sandboxes of house "+house, func(tx pgx.Tx) error {
		all, err = many[rows.Box](ctx, tx, `select `+sandboxColumns+` from sandboxes
			where house_id = $1 and (status <> 'dead' or destroyed_at is null) order by created_at desc, id`, house)
		return err
	})
	return all, err
}

// Resolution is the sandbox of a thread.
type Resolution struct {
	Sandbox rows.Box
	Made    bool     // the caller has to make its machine
	From    string   // the dead sandbox that it replaces; "" where there was none
	Threads []string // that were repointed from the dead one: each gets a signal
}

// Want has the values of a new sandbox's row.
type Want struct {
	Environment string        // outranks the thread's and the house's default
	Ephemeral   bool          // it is made for one run
	Patience    time.Duration // for the machine to be live
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
			o := rows.BoxOrder{Thread: thread, Environment: w.Environment, Ephemeral: w.Ephemeral}
			r.Made = true
			if b != nil {
				r.From = b.ID
			}
			r.Sandbox, r.Threads, err = makeBox(ctx, tx, b, o, w.Patience)
			return err
		})
	})
	return r, err
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

// Claim gives a driven thread to a run: its row is running from then on. It returns rows.ErrRunning where another run
// has the thread, and rows.ErrDeadBox where its sandbox is dead: Resolve gets another one. The same run may claim
// again.
//
// The sandbox's row is locked first, as a release locks it: a sandbox does not die under a claim.
func (s Scope) Claim(ctx context.Context, thread, run string) (t rows.Thread, err error) {
	err = raced(func() error {
		return s.tx(ctx, "claim thread "+thread, func(tx pgx.Tx) error {
			b, err := lockBox(ctx, tx, thread, "for share")
			if err != nil {
				return err
			}
			t, err = one[rows.Thread](ctx, tx, "thread", `select `+threadColumns+` from threads where id = $1`, thread)
			switch {
			case err != nil:
				return err
			case t.Agent == "":
				return rows.Refuse(rows.ErrInvalid, "thread "+thread).Because("it is a chat")
			case t.Status == rows.ThreadRunning && t.ClaimedRun == run:
				return nil
			case t.Status == rows.ThreadRunning:
				return rows.Refuse(rows.ErrRunning, "thread "+thread)
			case b != nil && b.Status == rows.BoxDead:
				return rows.Refuse(rows.ErrDeadBox, "thread "+thread)
			}
			t, err = one[rows.Thread](ctx, tx, "thread", `
				update threads set status = 'running', claimed_run = $2, claimed_at = now()
				where id = $1 and status <> 'running' returning `+threadColumns, thread, run)
			return err
		})
	})
	return t, err
}

// House returns a house.
func (s Scope) House(ctx context.Context, id string) (h rows.House, err error) {
	err = s.tx(ctx, "read house "+id, func(tx pgx.Tx) error {
		h, err = one[rows.House](ctx, tx, "house", `select `+houseColumns+` from houses where id = $1`, id)
		return err
	})
	return h, err
}

// Waiting returns the threads whose tasks are not launched yet, those that a host has included.
func (q Queue) Waiting(ctx context.Context) (threads []string, err error) {
	err = q.DB.Host().tx(ctx, "list tasks", func(tx pgx.Tx) (err error) {
		threads, err = column[string](ctx, tx,
			`select id from threads where launch_after is not null order by launch_after, id`)
		return err
	})
	return threads, err
}

// RenameAgent changes an agent's name. Only itself may, and the host.
func (s Scope) RenameAgent(ctx context.Context, id string, name string) error {
	return s.tx(ctx, "rename agent "+id, func(tx pgx.Tx) error {
		return exec(ctx, tx, "agent", `update agents set name = nullif($2, '') where id = $1`, id, name)
	})
}

// DeleteAgent deletes an agent with its memberships and the threads addressed to it. It returns ErrInUse for one that
// drives a thread. The host alone may.
func (s Scope) DeleteAgent(ctx context.Context, id string) error {
	return s.tx(ctx, "delete agent "+id, func(tx pgx.Tx) error {
		err := exec(ctx, tx, "agent", `delete from agents where id = $1`, id)
		return inUse(err, "archive the agent instead")
	})
}
