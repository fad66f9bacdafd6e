package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// A database is of one log, that of its first server: the rows cache the state of its runs. A host of another log,
// as of a server that was started with an empty data folder, would find none of the runs there, and make every row
// idle. So each of its transactions ends with rows.ErrOtherLog, before it has read or written a row, until the database
// is moved (Move).

// codeOtherLog is the SQLSTATE that the function require_log raises.
const codeOtherLog = "ARBE1"

// logLock is the number of the advisory lock that transactions of a log share. Move holds it alone.
const logLock = 0x61726265_0003

// Of returns the database for a host of the log with this id, which is that of its installation. It shares the
// connections of db, and the caller closes db alone. "" is a host that reads no log, or does not know its id: its
// transactions do not look.
func (db *DB) Of(log string) *DB {
	of := *db
	of.refused = new(atomic.Pointer[refused])
	if of.require = ""; log != "" {
		// As hex digits: the id may be what a server has answered.
		of.require = fmt.Sprintf("; select require_log(convert_from(decode('%x', 'hex'), 'UTF8'))", log)
	}
	return &of
}

// refused is the error of a host of another log, or of a newer schema, and when the database has returned it. Such a
// transaction costs its connection, so the next ones within refusedFor have the same error.
type refused struct {
	err error
	at  time.Time
}

const refusedFor = time.Second

// BoundLog is the log that a database is of.
type BoundLog struct {
	Log string // the id of its installation; "" for none yet
	At  time.Time
}

// Log returns the log that the database is of.
func (db *DB) Log(ctx context.Context) (b BoundLog, err error) {
	err = db.Of("").Host().tx(ctx, "read the log of the database", func(tx pgx.Tx) error {
		b, err = boundLog(ctx, tx)
		return err
	})
	return b, err
}

func boundLog(ctx context.Context, tx pgx.Tx) (BoundLog, error) {
	b, err := one[BoundLog](ctx, tx, "log", `select log, bound_at as at from bound_log`)
	if errors.Is(err, rows.ErrAbsent) {
		err = nil
	}
	return b, err
}

// Bind makes the database one of the log with this id, where it is of none yet. Of several logs at once one gets it. It
// returns rows.ErrOtherLog to the others.
func (db *DB) Bind(ctx context.Context, log string) error {
	return db.Of("").Host().tx(ctx, "bind the database to its log", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into bound_log (log) values ($1) on conflict do nothing`, log); err != nil {
			return err
		}
		b, err := boundLog(ctx, tx)
		if err == nil && b.Log != log {
			err = fmt.Errorf("%w (its rows are of the log %s, and not of %s)", rows.ErrOtherLog, b.Log, log)
		}
		return err
	})
}

// Move makes the database one of the log with this id, whichever it was of. It waits for the transactions of that log,
// and later ones return rows.ErrOtherLog. Rows follow once a server of the log projects them: all of them, as an offset
// of one log means nothing in another.
func (db *DB) Move(ctx context.Context, log string) error {
	return db.Of("").Host().tx(ctx, "move the database to another log", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock($1)`, int64(logLock)); err != nil {
			return err
		}
		for _, cache := range []string{"thread_cache", "dispatch_cache"} {
			if _, err := tx.Exec(ctx, `delete from `+cache); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, `insert into bound_log (log) values ($1)
			on conflict (one) do update set log = excluded.log, bound_at = now()`, log)
		return err
	})
}

// Beside counts a database's rows: those that a log has entries of, and those that become idle beside it.
type Beside struct {
	Threads int // all rows of threads
	Found   int // those of which the log has entries
	Idle    int // driven ones without entries there: they become idle
	Running int // of these, those that run
	Boxes   int // sandboxes that are not dead
}

// Beside counts the rows beside a log that has entries of these threads.
func (db *DB) Beside(ctx context.Context, has []string) (Beside, error) {
	return fetch[Beside](ctx, db.Of("").Host(), "count the rows beside a log", "log", `
		select count(*)::int as threads, count(*) filter (where found)::int as found,
			count(*) filter (where falls)::int as idle,
			count(*) filter (where falls and status = 'running')::int as running,
			(select count(*)::int from sandboxes where status <> 'dead') as boxes
		from (
			select status, id = any (coalesce($1::text[], '{}')) as found,
				id <> all (coalesce($1::text[], '{}')) and agent_id is not null and status <> 'idle' as falls
			from threads
		) t`, has)
}
