package control

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

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
