package control

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// A house may limit how many of its runs there are at once: houses.config has the limit, as runs. A task is taken, and
// a run for a chat is admitted, only where its thread has one of so many places, or gets one. A thread has a place
//
//   - while a host has its task (launch_host), also one that has died: the next host continues the launch in the same
//     place;
//   - while it runs, also by a run that was begun by hand. A run that is admitted claims its thread's row, which runs
//     from then on. The log and reconcilers end a run, and a claim that the log does not get.
//
// A task that is put back before its run has begun loses its place. Runs for chats, for which people wait, get places
// before tasks; of both the oldest do. A limit that no program has written counts as 0: only that house depends on it.

// placed is whether the thread of a row t has a place.
const placed = `(t.launch_host is not null or t.status = 'running')`

// limitOf is the limit of a row of houses that has one.
const limitOf = `(case when jsonb_typeof(config->'runs') = 'number'
	then least(greatest(floor((config->>'runs')::numeric), 0), 1000000) else 0 end::int)`

// runsOf is how many threads of a house h have a place, and waitingOf how many wait to be admitted.
const (
	runsOf = `(select count(*) from threads t where t.house_id = h.id and ` + placed + `)`

	waitingOf = `(select count(*) from waiting_runs w join threads t on t.id = w.thread_id
		where t.house_id = h.id and w.until > now() and not ` + placed + `)`
)

// dueTasks begins a statement: due are the tasks that are due. Those that start have a place, or get one.
const dueTasks = `
	with limited as materialized (
		select h.id as house, ` + limitOf + ` as runs, ` + limitOf + ` - ` + runsOf + ` - ` + waitingOf + ` as places
		from houses h
		where h.config ? 'runs' and h.id in (select house_id from threads where launch_after <= now())
	), due as (
		select t.id, t.house_id as house, l.runs, l.house is null or ` + placed + ` or l.places >=
			row_number() over (partition by t.house_id, ` + placed + ` order by t.created_at, t.id) as starts
		from threads t left join limited l on l.house = t.house_id where t.launch_after <= now()
	)`

// takeable returns the tasks that this host may take, at most limit, and locks their rows. Before that it locks their
// houses with limits: the second statement counts the places, and sees all that others took. It waits for no lock.
func takeable(ctx context.Context, tx pgx.Tx, limit int) ([]string, error) {
	houses, err := column[string](ctx, tx, dueTasks+`
		select id from houses where id in (select house from due where starts and runs is not null)
		for no key update skip locked`)
	if err != nil {
		return nil, err
	}
	return column[string](ctx, tx, dueTasks+`
		select t.id from threads t join due on due.id = t.id
		where t.launch_after <= now() and due.starts and (due.runs is null or due.house = any ($1))
		order by t.launch_after, t.id limit $2 for update of t skip locked`, houses, limit)
}

// admitLease is how long a run waits without being asked for again. Until then it keeps its turn.
const admitLease = 20 * time.Second

// Admit lets a run of a thread begin, which its caller launches then: where its house has a limit, the run claims the
// thread's row. It returns a *rows.HeldError where the house runs as many as it may; a caller that asks again and again
// keeps its turn. A run of a thread that runs is admitted: the log decides which one it is. The host alone may.
func (s Scope) Admit(ctx context.Context, thread, run string) error {
	var held error // which is to be committed
	err := s.tx(ctx, "admit run "+run+" of thread "+thread, func(tx pgx.Tx) error {
		held = nil
		limits, err := column[int](ctx, tx, `select `+limitOf+` from houses h where h.config ? 'runs'
			and h.id = (select house_id from threads where id = $1) for no key update`, thread)
		if err != nil || len(limits) == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `insert into waiting_runs as w (thread_id, until) values ($1, now() + $2::interval)
			on conflict (thread_id) do update set until = excluded.until,
				since = case when w.until > now() then w.since else excluded.since end`, thread, admitLease)
		if err != nil {
			return err
		}
		// A statement of its own: it sees all that others took before the house was locked.
		admitted, err := column[bool](ctx, tx, `
			select `+placed+` or $2 - `+runsOf+` > (
				select count(*) from waiting_runs w join threads t on t.id = w.thread_id
				where t.house_id = h.id and w.until > now() and not `+placed+`
					and (w.since, w.thread_id) < (own.since, own.thread_id)
			)
			from threads t join houses h on h.id = t.house_id join waiting_runs own on own.thread_id = t.id
			where t.id = $1`, thread, limits[0])
		switch {
		case err != nil:
			return err
		case len(admitted) == 0 || !admitted[0]: // or its row is deleted just now
			held = &rows.HeldError{Runs: limits[0]}
			return nil
		}
		return claim(ctx, tx, thread, run)
	})
	if err == nil {
		err = held
	}
	return err
}

// claim gives a thread that does not run to a run that has waited.
func claim(ctx context.Context, tx pgx.Tx, thread, run string) error {
	_, err := tx.Exec(ctx, `update threads set status = 'running', claimed_run = $2, claimed_at = now()
		where id = $1 and status <> 'running'`, thread, run)
	if err == nil {
		_, err = tx.Exec(ctx, `delete from waiting_runs where thread_id = $1`, thread)
	}
	return err
}

// Dismiss frees the place of an admitted run that is not on the log, since another run has the thread.
func (s Scope) Dismiss(ctx context.Context, thread, run string) error {
	_, err := change(ctx, s, "dismiss run "+run+" of thread "+thread, `update threads t
		set claimed_run = null, claimed_at = null,
			status = coalesce((select c.status from thread_cache c where c.thread_id = t.id), 'idle')
		where t.id = $1 and t.claimed_run = $2`, thread, run)
	return err
}

// HouseRuns returns how many runs a house has, and how many wait for that. The host alone may.
func (s Scope) HouseRuns(ctx context.Context, house string) (rows.HouseRuns, error) {
	return fetch[rows.HouseRuns](ctx, s, "count the runs of house "+house, "house", dueTasks+`
		select `+runsOf+`::int as running, (
			(select count(*) from due where due.house = h.id and not starts) + `+waitingOf+`
		)::int as waiting from (select $1::text as id) h`, house)
}

// heldTasks are the tasks that wait for their house.
const heldTasks = dueTasks + ` select id as thread, runs from due where not starts`

// HeldTask returns the task of a thread that waits for its house; false where it does not. The host alone may.
func (s Scope) HeldTask(ctx context.Context, thread string) (t rows.HeldTask, is bool, err error) {
	all, err := list[rows.HeldTask](ctx, s, "look whether task "+thread+" waits for its house",
		heldTasks+` and id = $1`, thread)
	if err != nil || len(all) == 0 {
		return t, false, err
	}
	return all[0], true, nil
}

// mostHeld bounds the list of the tasks that wait for their house.
const mostHeld = 1000

// Held returns the tasks that wait for their house.
func (q Queue) Held(ctx context.Context) ([]rows.HeldTask, error) {
	return list[rows.HeldTask](ctx, q.DB.Host(), "list the tasks that wait for their house",
		heldTasks+` order by id limit $1`, mostHeld)
}
