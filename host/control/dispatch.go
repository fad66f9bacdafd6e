package control

import (
	"context"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/rows"
)

// dispatchVersion is that of the rules by which something is open for bots. Another one has all threads read again.
const dispatchVersion = 1

// Unanswered implements answer.Rows. Where dispatch_cache lacks a thread, it is among them.
func (db *DB) Unanswered(ctx context.Context, some []rows.ThreadAt) (ids []string, err error) {
	id, upto := make([]string, len(some)), make([]string, len(some))
	for i, at := range some {
		id[i], upto[i] = at.ID, at.Offset
	}
	return values[string](ctx, db.Host(), "look for threads without an answer", `
		select t.id from unnest($1::text[], $2::text[]) as log (id, upto)
		join threads t on t.id = log.id
		join houses h on h.id = t.house_id and h.dispatch_since is not null
		left join dispatch_cache c on c.thread_id = t.id
		where c.upto is distinct from log.upto or c.version <> $3
		order by t.id`, id, upto, dispatchVersion)
}

// Answered implements answer.Rows. A thread without a row is left alone.
func (db *DB) Answered(ctx context.Context, at rows.ThreadAt) error {
	return db.Host().tx(ctx, "note that thread "+at.ID+" is answered", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `insert into dispatch_cache as c (thread_id, upto, version)
			select id, $2, $3 from threads where id = $1 for key share
			on conflict (thread_id) do update set upto = $2, version = $3 where c.upto <> $2 or c.version <> $3`,
			at.ID, at.Offset, dispatchVersion)
		return err
	})
}
