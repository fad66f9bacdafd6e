package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// Projector makes the rows of driven threads follow the log: a row's status is that of its thread's summary, and
// thread_cache has the summary itself. It compares offsets, so that repeating it, at any time and by any host, changes
// nothing; a truncated thread_cache is made again.
//
// A claim is ahead of the log. While the log does not know the run that has claimed a thread, the row stays running.
//
// One projector at a time writes; the others wait for its connection to end.
type Projector struct {
	DB    *DB
	Index *index.Index
	// Knows reports whether the log of a thread has a signal of a run.
	Knows  func(ctx context.Context, thread, run string) (bool, error)
	Logger *slog.Logger
}

// foldVersion is the form of thread_cache.fold: thread.Summary. Another one makes all of them again.
const foldVersion = 1

// projectorLock is the number of the advisory lock that the projector holds that writes.
const projectorLock = 0x61726265_0002

// Times of Run.
const (
	projectorRest  = 100 * time.Millisecond // between two passes
	projectorIdle  = 5 * time.Second        // until another projector's lock is tried again
	projectorSweep = time.Minute            // between two looks for rows without a summary
	leastWait      = 100 * time.Millisecond // between two attempts to reach the database, at first
	mostWait       = 30 * time.Second       // and later
)

// mostChanges bounds the threads of a transaction.
const mostChanges = 500

// errNotLeading is the error of a projector while another one writes.
var errNotLeading = errors.New("another projector writes")

// Run projects what changes until ctx is done, and returns nil then. While the database is away it tries again.
func (p *Projector) Run(ctx context.Context) error {
	var failing time.Time // zero: it is not
	wait := leastWait
	for {
		err := p.follow(ctx, func() {
			if wait = leastWait; !failing.IsZero() {
				p.Logger.Info("rows follow the log again", "after", time.Since(failing).Round(time.Millisecond))
			}
			failing = time.Time{}
		})
		rest := projectorIdle
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errNotLeading):
		case failing.IsZero():
			failing = time.Now()
			p.Logger.Warn("rows do not follow the log", "error", err)
			fallthrough
		default:
			rest = wait
			wait = min(2*wait, mostWait)
		}
		if !pause.For(ctx, rest) {
			return nil
		}
	}
}

// follow projects until it fails. It calls caughtUp once all rows are up to date.
func (p *Projector) follow(ctx context.Context, caughtUp func()) error {
	l, err := p.lead(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.compare(ctx, false); err != nil {
		return err
	}
	caughtUp()
	sweep := time.NewTicker(projectorSweep)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.reader.News():
			err = l.sync(ctx)
		case <-sweep.C:
			err = l.compare(ctx, true)
		}
		if err != nil {
			return err
		}
		if !pause.For(ctx, projectorRest) {
			return nil
		}
	}
}

// leader is a projector that writes. The connection that it writes with has the lock, so that it can't write without.
type leader struct {
	*Projector
	conn   *pgx.Conn
	reader *index.Reader
}

// lead makes this projector the one that writes. It returns errNotLeading.
func (p *Projector) lead(ctx context.Context) (l *leader, err error) {
	limited, cancel := context.WithTimeout(ctx, p.DB.config.Call)
	defer cancel()
	conn, err := pgx.ConnectConfig(limited, p.DB.pool.Config().ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("lead the projectors: %w", explained(err))
	}
	l = &leader{p, conn, p.Index.Watch()} // from here on: what changes during compare is news
	led := false
	err = l.conn.QueryRow(limited, "select pg_try_advisory_lock($1)", int64(projectorLock)).Scan(&led)
	if err == nil && !led {
		err = errNotLeading
	}
	if err != nil {
		l.close()
		return nil, explained(err)
	}
	return l, nil
}

// close ends the lead. The lock ends with the connection at the latest, once the server has noticed.
func (l *leader) close() {
	l.reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), connectWait)
	defer cancel()
	_, _ = l.conn.Exec(ctx, "select pg_advisory_unlock_all()") // fails where the connection is broken
	_ = l.conn.Close(ctx)                                      // it is not used again
}

// sync projects what has changed since the last call.
func (l *leader) sync(ctx context.Context) error {
	for more := true; more; {
		var changes []index.Change
		var err error
		if changes, more, err = l.reader.Take(ctx, mostChanges); err != nil {
			return fmt.Errorf("read what has changed on the log: %w", err)
		}
		if err := l.project(ctx, changes); err != nil {
			return err
		}
	}
	return nil
}

// rowState is the state of a thread's row and its cache before a projection.
type rowState struct {
	ID         string
	ClaimedRun string
	Upto       string // "" for nothing
	Version    int32  // 0 for no summary
}

const stateColumns = `t.id, coalesce(t.claimed_run, '') as claimed_run, coalesce(c.upto, '') as upto,
	coalesce(c.version, 0) as version from threads t left join thread_cache c on c.thread_id = t.id`

// compare projects all rows that differ from the log, or, where missing is set, those without a summary.
func (l *leader) compare(ctx context.Context, missing bool) error {
	for after, more := "", true; more; {
		var rows []rowState
		err := l.tx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			rows, err = many[rowState](ctx, tx, `select `+stateColumns+`
				where t.id > $1 and (c.thread_id is null or not $2) order by t.id limit $3`,
				after, missing, mostChanges)
			return err
		})
		if err != nil {
			return err
		}
		if more = len(rows) == mostChanges; len(rows) > 0 {
			after = rows[len(rows)-1].ID
		}
		var changes []index.Change
		for _, r := range rows {
			c, err := l.now(ctx, r.ID)
			if err != nil {
				return err
			}
			if c.Summary.Offset != r.Upto || r.Version != foldVersion {
				changes = append(changes, c)
			}
		}
		if err := l.project(ctx, changes); err != nil {
			return err
		}
	}
	return nil
}

// now returns a thread's change up to the end of its log.
func (l *leader) now(ctx context.Context, id string) (index.Change, error) {
	v, err := l.Index.Summary(ctx, id)
	switch {
	case errors.Is(err, index.ErrAbsent):
		return index.Change{ID: id, Summary: empty(id), Deleted: true}, nil
	case err != nil:
		return index.Change{}, fmt.Errorf("fold thread %s: %w", id, err)
	}
	return index.Change{ID: id, Summary: v}, nil
}

// empty returns the summary of a thread without entries.
func empty(id string) thread.Summary { return thread.Summary{ID: id, Status: thread.StatusIdle} }

// project writes changes to existing rows. It creates none.
func (l *leader) project(ctx context.Context, changes []index.Change) error {
	if len(changes) == 0 {
		return nil
	}
	ids := make([]string, len(changes))
	for i, c := range changes {
		ids[i] = c.ID
	}
	return l.tx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := many[rowState](ctx, tx, `select `+stateColumns+` where t.id = any ($1)`, ids)
		if err != nil {
			return err
		}
		state := map[string]rowState{}
		for _, r := range rows {
			state[r.ID] = r
		}
		var batch pgx.Batch
		for _, c := range changes {
			if r, there := state[c.ID]; there {
				if err := l.queue(ctx, &batch, c, r); err != nil {
					return err
				}
			}
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
}

// projection writes a thread's summary, where its offset is behind that of the cache, and the status that follows. $6
// is the offset of a log that has been replaced, $9 a claimed run that the log knows.
const projection = `
	with fresh as (
		insert into thread_cache as c (thread_id, upto, version, status, fold, last_beat_at)
		select id, $2, $3, $7, $4, $5 from threads where id = $1 for key share
		on conflict (thread_id) do update
		set upto = $2, version = $3, status = $7, fold = $4, last_beat_at = $5
		where c.upto < $2 or c.version <> $3 or c.upto = $6
		returning thread_id
	)
	update threads t set status = $7, claimed_run = null, claimed_at = null from fresh
	where t.id = fresh.thread_id and t.agent_id is not null
		and (t.claimed_run is null or t.claimed_run = any (array[$8, $9]))
		and (t.status <> $7 or t.claimed_run is not null)`

// queue adds the projection of a change to a batch.
func (l *leader) queue(ctx context.Context, batch *pgx.Batch, c index.Change, r rowState) error {
	if c.Deleted {
		c.Summary = empty(c.ID)
	}
	replaced := ""
	if c.Summary.Offset < r.Upto { // an older change, or another log: one that was deleted, and maybe made again
		now, err := l.now(ctx, c.ID)
		if err != nil {
			return err
		}
		if c = now; c.Summary.Offset < r.Upto {
			replaced = r.Upto
		}
	}
	v := c.Summary
	known := ""
	if r.ClaimedRun != "" && r.ClaimedRun != v.Run && !c.Deleted {
		is, err := l.Knows(ctx, c.ID, r.ClaimedRun)
		if err != nil {
			return fmt.Errorf("look for run %s on thread %s: %w", r.ClaimedRun, c.ID, err)
		}
		if is { // since the summary was made, or under a later run
			known = r.ClaimedRun
			if c, err = l.now(ctx, c.ID); err != nil {
				return err
			}
			v = c.Summary
		}
	}
	var beat *time.Time
	if at, err := time.Parse(time.RFC3339, v.LastBeatAt); err == nil {
		beat = &at
	}
	batch.Queue(projection, c.ID, v.Offset, foldVersion, thread.Marshal(v), beat, replaced, v.Status, v.Run, known)
	return nil
}

// tx runs f in a transaction of the connection that has the lock.
func (l *leader) tx(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	limited, cancel := context.WithTimeout(ctx, l.DB.config.Call)
	defer cancel()
	err := pgx.BeginTxFunc(limited, l.conn, pgx.TxOptions{BeginQuery: l.DB.begin()}, func(tx pgx.Tx) error {
		return f(limited, tx)
	})
	if err != nil {
		return fmt.Errorf("project the log: %w", explained(err))
	}
	return nil
}
