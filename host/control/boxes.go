package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
)

// Boxes are the rows of sandboxes and threads as launches and reconcilers use them: resolve.Rows and reconcile.Rows.
// All of it is the host's.
type Boxes struct {
	// Open returns the database, which may be away: threads and runs do not need it.
	Open func(ctx context.Context) (*DB, error)
}

func (b Boxes) tx(ctx context.Context, what string, f func(pgx.Tx) error) error {
	db, err := b.Open(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return db.Host().tx(ctx, what, f)
}

// Lease returns the lease of a sandbox.
func (b Boxes) Lease(sandbox string) lease.Lease { return boxLease{b, sandbox} }

// Claimed implements resolve.Rows.
func (b Boxes) Claimed(ctx context.Context, thread string) (run string, since time.Duration, err error) {
	err = b.tx(ctx, "read the claim of thread "+thread, func(tx pgx.Tx) error {
		run, since = "", 0
		err := tx.QueryRow(ctx, `select claimed_run, now() - claimed_at from threads
			where id = $1 and claimed_run is not null`, thread).Scan(&run, &since)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return run, since, err
}

// Obtain implements resolve.Rows. The order of locks, here and elsewhere, is: sandbox, then threads.
func (b Boxes) Obtain(ctx context.Context, o rows.BoxOrder) (turn rows.BoxTurn, err error) {
	err = raced(func() error {
		return b.tx(ctx, "get the sandbox of thread "+o.Thread, func(tx pgx.Tx) error {
			turn = rows.BoxTurn{}
			box, err := lockBox(ctx, tx, o.Thread)
			if err != nil {
				return err
			}
			if o.Claim {
				if err := free(ctx, tx, o); err != nil {
					return err
				}
			}
			if err := expire(ctx, tx, box); err != nil {
				return err
			}
			if turn, err = obtain(ctx, tx, box, o); err != nil {
				return err
			}
			turn.Notices, err = many[rows.Notice](ctx, tx, noticesQuery+` where sandbox_id = $1 order by thread_id`,
				turn.Row.ID)
			if err != nil {
				return err
			}
			return putHold(ctx, tx, turn.Row.House, turn.Row.ID, o.Hold)
		})
	})
	return turn, err
}

// free returns a *rows.ClaimedError where another run has a thread. A row's claim of a run that the log knows is
// older than the log, which has given the thread to this run.
func free(ctx context.Context, tx pgx.Tx, o rows.BoxOrder) error {
	var status, run string
	var fresh, driven bool
	err := tx.QueryRow(ctx, `select status, coalesce(claimed_run, ''), agent_id is not null,
			coalesce(claimed_at > now() - $2::interval, false) from threads where id = $1`,
		o.Thread, rows.ClaimTimeout).Scan(&status, &run, &driven, &fresh)
	switch {
	case err != nil:
		return err
	case !driven:
		return rows.Refuse(rows.ErrInvalid, "thread "+o.Thread).Because("it is a chat")
	case status == rows.ThreadRunning && run != "" && run != o.Hold.RunID && fresh && !slices.Contains(o.Known, run):
		return &rows.ClaimedError{Thread: o.Thread, Run: run}
	}
	return nil
}

// point gives a sandbox to the thread of an order, and to all threads of a dead one, and returns these threads. With
// o.Claim it gives the thread to the order's run. It is one statement: a second change of a row locks its parent's row,
// which deadlocks with a deletion of both.
func point(ctx context.Context, tx pgx.Tx, o rows.BoxOrder, box string, dead *rows.Box) ([]string, error) {
	var was *string
	if dead != nil {
		was = &dead.ID
	}
	return column[string](ctx, tx, `
		with given as (select case when $4::boolean then $1 end as thread)
		update threads set sandbox_id = $2,
			status = case when id = thread then 'running' else status end,
			claimed_run = case when id = thread then $5 else claimed_run end,
			claimed_at = case when id = thread then now() else claimed_at end
		from given where id = $1 or sandbox_id = $3 returning id`, o.Thread, box, was, o.Claim, o.Hold.RunID)
}

// expire declares a sandbox dead that is pending for too long.
func expire(ctx context.Context, tx pgx.Tx, box *rows.Box) error {
	if box == nil || box.Status != rows.BoxPending {
		return nil
	}
	late, err := column[bool](ctx, tx, `select pending_until < now() from sandboxes where id = $1`, box.ID)
	if err != nil || !late[0] {
		return err
	}
	box.Status = rows.BoxDead
	return bury(ctx, tx, box.ID)
}

// obtain returns a thread's sandbox, or makes the row of a new one.
func obtain(ctx context.Context, tx pgx.Tx, box *rows.Box, o rows.BoxOrder) (turn rows.BoxTurn, err error) {
	if box != nil && box.Status != rows.BoxDead {
		turn.Row = *box
		turn.Make, err = take(ctx, tx, box, o)
		if turn.Taken = turn.Make; turn.Taken {
			turn.Row.Ref = "" // an earlier call's machine
		}
		if err == nil && o.Claim {
			_, err = point(ctx, tx, o, box.ID, nil)
		}
		return turn, err
	}
	turn.Make = true
	if turn.Row, err = makeBox(ctx, tx, box, o); err != nil {
		return turn, err
	}
	threads, err := point(ctx, tx, o, turn.Row.ID, box)
	if err == nil && box != nil {
		// A thread without the signal of the dead box keeps its notice's older origin, so it gets one signal, not two.
		_, err = tx.Exec(ctx, `with late as (
				delete from sandbox_notices where sandbox_id = $3 returning thread_id, from_id
			)
			insert into sandbox_notices (house_id, sandbox_id, thread_id, from_id)
			select t.house_id, $2, t.id, coalesce(late.from_id, $3)
			from threads t left join late on late.thread_id = t.id where t.id = any ($1)`,
			threads, turn.Row.ID, box.ID)
	}
	return turn, err
}

// take makes the call of an order the maker of a pending sandbox that an earlier call for the same holder was to make:
// its answer was lost, or another host has the run now.
func take(ctx context.Context, tx pgx.Tx, box *rows.Box, o rows.BoxOrder) (bool, error) {
	tag, err := tx.Exec(ctx, `update sandboxes
		set maker = $2, provider_ref = null, pending_until = now() + $4::interval
		where id = $1 and status = 'pending' and split_part(maker, '#', 1) = $3`,
		box.ID, o.Maker, o.Hold.Holder, rows.MakeTimeout)
	return tag.RowsAffected() > 0, err
}

const noticesQuery = `select thread_id as thread, sandbox_id as row, from_id as from from sandbox_notices`

// Noted implements resolve.Rows.
func (b Boxes) Noted(ctx context.Context, n rows.Notice) error {
	_, err := change(ctx, b, "note the thread of sandbox "+n.Row,
		`delete from sandbox_notices where sandbox_id = $1 and thread_id = $2`, n.Row, n.Thread)
	return err
}

// Notices implements reconcile.Rows.
func (b Boxes) Notices(ctx context.Context) ([]rows.Notice, error) {
	return list[rows.Notice](ctx, b, "list threads with a new sandbox",
		noticesQuery+` order by at, sandbox_id, thread_id limit $1`, mostStale)
}

// GiveUp implements resolve.Rows.
func (b Boxes) GiveUp(ctx context.Context, row, maker string) (now rows.Box, mine bool, err error) {
	type made struct {
		rows.Box
		Mine bool
	}
	err = b.tx(ctx, "give up sandbox "+row, func(tx pgx.Tx) error {
		now, mine = rows.Box{}, false
		box, err := one[made](ctx, tx, "sandbox", `select `+sandboxColumns+`, coalesce(maker = $2, false) as mine
			from sandboxes where id = $1 for update`, row, maker)
		if err != nil {
			return rows.Present(err)
		}
		if now, mine = box.Box, box.Mine; mine && now.Status == rows.BoxPending {
			now.Status = rows.BoxDead
			err = bury(ctx, tx, row)
		}
		return err
	})
	return now, mine, err
}

// Row implements reap.Rows.
func (b Boxes) Row(ctx context.Context, id string) (row rows.BoxState, is bool, err error) {
	err = b.tx(ctx, "read sandbox "+id, func(tx pgx.Tx) error {
		row, is = rows.BoxState{ID: id}, false
		var condemned *time.Time
		err := tx.QueryRow(ctx, `select coalesce(provider_ref, ''), live_at is not null, status = 'dead', condemned_at
			from sandboxes where id = $1`, id).Scan(&row.Ref, &row.Used, &row.Dead, &condemned)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		if is = true; condemned != nil {
			row.Condemned = *condemned
		}
		row.Threads, err = many[rows.BoxThread](ctx, tx, `
			select id, status, coalesce(claimed_run, '') as run from threads where sandbox_id = $1
			union all
			select t.id, '', '' from sandboxes s, unnest(s.last_threads) as t(id)
			where s.id = $1 and not exists (select from threads where id = t.id and sandbox_id = $1)
			order by id`, id)
		return err
	})
	return row, is, err
}

// Renew implements resolve.Rows.
func (b Boxes) Renew(ctx context.Context, row, maker, ref string) error {
	return b.report(ctx, row, `update sandboxes set pending_until = now() + $4::interval,
			provider_ref = coalesce(nullif($3, ''), provider_ref)
		where id = $1 and maker = $2 and status = 'pending'`, row, maker, ref, rows.MakeTimeout)
}

// Ready implements resolve.Rows.
func (b Boxes) Ready(ctx context.Context, row, maker, ref string) error {
	return b.report(ctx, row, `update sandboxes
		set status = 'live', provider_ref = $3, live_at = coalesce(live_at, now())
		where id = $1 and maker = $2 and (status = 'pending' or status = 'live' and provider_ref = $3)`, row, maker, ref)
}

// report changes the row of a sandbox for its maker.
func (b Boxes) report(ctx context.Context, row, sql string, args ...any) error {
	what := "report the machine of sandbox " + row
	done, err := change(ctx, b, what, sql, args...)
	if err == nil && !done {
		err = fmt.Errorf("%s: %w", what, lease.ErrReleased)
	}
	return err
}

// Release implements reap.Rows.
func (b Boxes) Release(ctx context.Context, row string, seen []rows.Hold, judged []string) (done bool, err error) {
	return b.die(ctx, row, seen, judged, false)
}

// Condemn implements reap.Rows.
func (b Boxes) Condemn(ctx context.Context, row string, seen []rows.Hold, judged []string) (done bool, err error) {
	return b.die(ctx, row, seen, judged, true)
}

// Doubt implements reap.Rows.
func (b Boxes) Doubt(ctx context.Context, row, why string) error {
	_, err := change(ctx, b, "doubt sandbox "+row, `update sandboxes
		set doubted_at = coalesce(doubted_at, now()), doubt = $2 where id = $1 and status = 'live'`, row, why)
	return err
}

// Doubted implements reconcile.Rows.
func (b Boxes) Doubted(ctx context.Context) ([]rows.Box, error) {
	return list[rows.Box](ctx, b, "list doubted sandboxes", `select `+sandboxColumns+` from sandboxes
		where doubted_at is not null and status = 'live' order by doubted_at, id limit $1`, mostStale)
}

// Trust implements reconcile.Rows.
func (b Boxes) Trust(ctx context.Context, row string) error {
	_, err := change(ctx, b, "trust sandbox "+row,
		`update sandboxes set doubted_at = null, doubt = null where id = $1`, row)
	return err
}

// Gone implements reap.Rows. A sandbox without a row is no error.
func (b Boxes) Gone(ctx context.Context, row string) error {
	return b.tx(ctx, "tombstone sandbox "+row, func(tx pgx.Tx) error {
		if err := bury(ctx, tx, row); err != nil {
			return rows.Present(err)
		}
		_, err := tx.Exec(ctx,
			`update sandboxes set destroyed_at = coalesce(destroyed_at, now()) where id = $1`, row)
		return err
	})
}

// Ended implements resolve.Rows.
func (b Boxes) Ended(ctx context.Context, thread, run, status string) error {
	_, err := change(ctx, b, "adopt the end of run "+run, `update threads
		set status = $3, claimed_run = null, claimed_at = null
		where id = $1 and status = 'running' and claimed_run = $2`, thread, run, status)
	return err
}

// Running implements reconcile.Rows.
func (b Boxes) Running(ctx context.Context, thread string) (r rows.Running, is bool, err error) {
	err = b.tx(ctx, "read thread "+thread, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `select coalesce(claimed_run, ''), coalesce(now() - claimed_at, '0'), updated_at
			from threads where id = $1 and status = 'running'`, thread).Scan(&r.Run, &r.Since, &r.Version)
		if is = err == nil; errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return r, is, err
}

// Follow implements reconcile.Rows.
func (b Boxes) Follow(ctx context.Context, thread string, seen rows.Running, status string) error {
	_, err := change(ctx, b, "settle thread "+thread, `update threads
		set status = $3, claimed_run = null, claimed_at = null
		where id = $1 and status = 'running' and updated_at = $2`, thread, seen.Version, status)
	return err
}

// Unhold implements reconcile.Rows.
func (b Boxes) Unhold(ctx context.Context, thread string, runs []string) error {
	_, err := change(ctx, b, "drop the holds of thread "+thread, `delete from sandbox_holds
		where thread_id = $1 and run_id = any ($2) and expires_at is null`, thread, runs)
	return err
}

// Commands implements reconcile.Rows.
func (b Boxes) Commands(ctx context.Context, thread string) ([]string, error) {
	return values[string](ctx, b, "list the commands of thread "+thread, `select run_id from sandbox_holds
		where thread_id = $1 and expires_at is null and starts_with(holder, 'exec:')`, thread)
}

// Bounds of the lists of a reconciler's pass: what is left comes in a later one.
const (
	mostStale = 500
	mostBoxes = 10_000
)

// Stale implements reconcile.Rows.
func (b Boxes) Stale(ctx context.Context) ([]string, error) {
	return values[string](ctx, b, "list stale claims and holds", `(
			select id from threads where claimed_run is not null and claimed_at < now() - $1::interval
			order by claimed_at, id limit $2
		) union (
			select t.id from sandbox_holds h join threads t on t.id = h.thread_id
			where t.status <> 'running' and h.expires_at is null and h.at < now() - $1::interval
			order by h.at, t.id limit $2
		)`, rows.ClaimTimeout, mostStale)
}

// Expire implements reconcile.Rows.
func (b Boxes) Expire(ctx context.Context) error {
	return b.tx(ctx, "expire sandboxes", func(tx pgx.Tx) error {
		late, err := column[string](ctx, tx, `update sandboxes set status = 'dead'
			where status = 'pending' and pending_until < now() returning id`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `delete from sandbox_holds
			where sandbox_id = any ($1) or expires_at < clock_timestamp()`, late)
		return err
	})
}

// Boxes implements reconcile.Rows.
func (b Boxes) Boxes(ctx context.Context, named []string) ([]rows.Box, error) {
	return list[rows.Box](ctx, b, "list sandboxes", `select `+sandboxColumns+` from sandboxes
		where status <> 'dead' or destroyed_at is null or id = any ($1)
		order by status = 'dead' desc, created_at, id limit $2`, named, mostBoxes)
}

// BoxAt implements reap.Rows.
func (b Boxes) BoxAt(ctx context.Context, provider, ref string) (row string, err error) {
	found, err := values[string](ctx, b, "find the sandbox "+provider+":"+ref,
		`select id from sandboxes where provider = $1 and provider_ref = $2 order by created_at limit 1`, provider, ref)
	if err == nil && len(found) == 1 {
		row = found[0]
	}
	return row, err
}
