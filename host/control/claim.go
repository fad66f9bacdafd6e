package control

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// Adopt gives a thread's row the verdict of a run that has claimed it. done is false where the run does not have the
// thread any more.
func (s Scope) Adopt(ctx context.Context, thread, run, status string) (done bool, err error) {
	err = s.tx(ctx, "adopt the end of run "+run, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update threads set status = $3, claimed_run = null, claimed_at = null
			where id = $1 and status = 'running' and claimed_run = $2`, thread, run, status)
		done = tag.RowsAffected() > 0
		return err
	})
	return done, err
}

// Abandon ends the claim of a run that the log does not know: the row has the status that the log has. done is false
// where the run does not have the thread any more.
func (s Scope) Abandon(ctx context.Context, thread, run string) (done bool, err error) {
	err = s.tx(ctx, "abandon the claim of run "+run, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `update threads set claimed_run = null, claimed_at = null,
				status = coalesce((select status from thread_cache where thread_id = id), 'idle')
			where id = $1 and claimed_run = $2`, thread, run)
		done = tag.RowsAffected() > 0
		return err
	})
	return done, err
}

// Stale returns at most limit threads that were claimed before a time by a run that the log does not know yet. Abandon
// ends such a claim.
func (s Scope) Stale(ctx context.Context, before time.Time, limit int) (all []rows.Thread, err error) {
	err = s.tx(ctx, "list stale claims", func(tx pgx.Tx) error {
		all, err = many[rows.Thread](ctx, tx, `select `+listedThread+` from threads
			where claimed_run is not null and claimed_at < $1 order by claimed_at, id limit $2`, before, limit)
		return err
	})
	return all, err
}
