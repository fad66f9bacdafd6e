package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/rows"
)

// boxLease is the lease of a sandbox: rows of sandbox_holds. The database's clock decides whether a hold has expired.
type boxLease struct {
	boxes Boxes
	id    string
}

var _ lease.Lease = boxLease{}

// holdRow is a row of sandbox_holds.
type holdRow struct {
	Holder    string
	Thread    string
	Run       string
	At        time.Time
	ExpiresAt *time.Time
}

const holdColumns = `holder, thread_id as thread, run_id as run, at, expires_at`

func (r holdRow) hold() rows.Hold {
	h := rows.Hold{Holder: r.Holder, ThreadID: r.Thread, RunID: r.Run, At: r.At.UTC()}
	if r.ExpiresAt != nil {
		h.TTL = r.ExpiresAt.Sub(r.At)
	}
	return h
}

// holds returns a sandbox's holds, in the order of their start.
func holds(ctx context.Context, tx pgx.Tx, sandbox string) ([]rows.Hold, error) {
	found, err := many[holdRow](ctx, tx, `select `+holdColumns+`
		from sandbox_holds where sandbox_id = $1 order by at, holder`, sandbox)
	all := make([]rows.Hold, len(found))
	for i, r := range found {
		all[i] = r.hold()
	}
	return all, err
}

// leaseState returns the state of a sandbox's lease, with its row locked by a clause. A sandbox without a row has been
// released.
func leaseState(ctx context.Context, tx pgx.Tx, sandbox, clause string) (house string, s lease.State, err error) {
	b, err := one[rows.Box](ctx, tx, "sandbox", boxByID+` `+clause, sandbox)
	if errors.Is(err, rows.ErrAbsent) {
		return "", lease.State{Released: true, Now: time.Now()}, nil
	} else if err != nil {
		return "", s, err
	}
	if err := tx.QueryRow(ctx, `select clock_timestamp()`).Scan(&s.Now); err != nil {
		return "", s, err
	}
	if s.Released = b.Status == rows.BoxDead; s.Released {
		return b.House, s, nil
	}
	s.Holds, err = holds(ctx, tx, sandbox)
	return b.House, s, err
}

// putHold writes a hold, or renews it.
func putHold(ctx context.Context, tx pgx.Tx, house, sandbox string, h rows.Hold) error {
	var ttl *time.Duration
	if h.TTL > 0 {
		ttl = &h.TTL
	}
	_, err := tx.Exec(ctx, `
		insert into sandbox_holds as h (house_id, sandbox_id, holder, thread_id, run_id, at, expires_at)
		select $1, $2, $3, $4, $5, t, t + $6::interval from (select clock_timestamp() as t) as now
		on conflict (house_id, sandbox_id, holder) do update
		set thread_id = excluded.thread_id, run_id = excluded.run_id, at = excluded.at, expires_at = excluded.expires_at`,
		house, sandbox, h.Holder, h.ThreadID, h.RunID, ttl)
	return err
}

func (l boxLease) tx(ctx context.Context, what string, f func(pgx.Tx) error) error {
	return l.boxes.tx(ctx, what+" of sandbox "+l.id, f)
}

// Read implements lease.Lease.
func (l boxLease) Read(ctx context.Context) (s lease.State, err error) {
	err = l.tx(ctx, "read the lease", func(tx pgx.Tx) error {
		_, s, err = leaseState(ctx, tx, l.id, "")
		return err
	})
	return s, err
}

// Hold implements lease.Lease.
func (l boxLease) Hold(ctx context.Context, h rows.Hold) error {
	return l.tx(ctx, "hold the lease", func(tx pgx.Tx) error {
		house, s, err := leaseState(ctx, tx, l.id, "for share")
		switch {
		case err != nil:
			return err
		case s.Released:
			return lease.ErrReleased
		}
		return putHold(ctx, tx, house, l.id, h)
	})
}

// Try implements lease.Lease.
func (l boxLease) Try(ctx context.Context, h rows.Hold) (got bool, err error) {
	err = l.tx(ctx, "hold the lease", func(tx pgx.Tx) error {
		house, s, err := leaseState(ctx, tx, l.id, "for update")
		switch {
		case err != nil:
			return err
		case s.Released:
			return lease.ErrReleased
		}
		other, held := s.Held(func(rows.Hold) bool { return false })
		if got = !held || other.Holder == h.Holder; !got {
			return nil
		}
		return putHold(ctx, tx, house, l.id, h)
	})
	return got && err == nil, err
}

// Drop implements lease.Lease.
func (l boxLease) Drop(ctx context.Context, holder string) error {
	return l.tx(ctx, "drop a hold", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `delete from sandbox_holds where sandbox_id = $1 and holder = $2`, l.id, holder)
		return err
	})
}

// die declares a sandbox dead if its holds are those that were seen, and no thread runs in it but the judged ones. done
// reports that it is dead; condemned notes that its machine is the reason.
func (b Boxes) die(
	ctx context.Context, sandbox string, seen []rows.Hold, judged []string, condemned bool,
) (done bool, err error) {
	err = b.tx(ctx, "release sandbox "+sandbox, func(tx pgx.Tx) error {
		_, s, err := leaseState(ctx, tx, sandbox, "for update")
		if err != nil {
			return err
		}
		if done = s.Released; done || !slices.Equal(s.Holds, seen) {
			return nil
		}
		// The lock is a statement of its own: this one sees each claim that had the lock before.
		others, err := column[string](ctx, tx, `select id from threads
			where sandbox_id = $1 and status = 'running' and id <> all (coalesce($2::text[], '{}')) limit 1`,
			sandbox, judged)
		if err != nil || len(others) > 0 {
			return err
		}
		done = true
		if condemned {
			err = exec(ctx, tx, "sandbox", `update sandboxes set condemned_at = now() where id = $1`, sandbox)
		}
		if err != nil {
			return err
		}
		return bury(ctx, tx, sandbox)
	})
	return done && err == nil, err
}

// bury declares a sandbox dead, which ends its holds. The threads that name it are kept.
func bury(ctx context.Context, tx pgx.Tx, sandbox string) error {
	there, err := column[bool](ctx, tx, `select condemn_sandbox($1)`, sandbox)
	if err == nil && !there[0] {
		err = rows.Refuse(rows.ErrAbsent, "sandbox")
	}
	return err
}
