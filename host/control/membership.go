package control

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Houses returns the houses of an agent; none for one that does not exist or is archived. With HousesOf it makes a DB
// the rows by which package member decides.
func (db *DB) Houses(ctx context.Context, agent string) (all []string, err error) {
	err = db.As(agent).tx(ctx, "list the houses of agent "+agent, func(tx pgx.Tx) error {
		all, err = column[string](ctx, tx, `select id from houses order by id`)
		return err
	})
	return all, err
}

// HousesOf returns the house of each of some threads, by the thread's id. Threads without a row are not in it.
func (db *DB) HousesOf(ctx context.Context, threads []string) (map[string]string, error) {
	var houses map[string]string
	err := db.Host().tx(ctx, "read the houses of threads", func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, `select id, house_id from threads where id = any ($1)`, threads)
		if err != nil {
			return err
		}
		houses = map[string]string{}
		var thread, house string
		_, err = pgx.ForEachRow(found, []any{&thread, &house}, func() error {
			houses[thread] = house
			return nil
		})
		return err
	})
	return houses, err
}

// Closed reports whether a thread is a closed chat.
func (db *DB) Closed(ctx context.Context, thread string) (closed bool, err error) {
	err = db.Host().tx(ctx, "read thread "+thread, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `select exists (select from threads where id = $1 and status = 'closed')`, thread).
			Scan(&closed)
	})
	return closed, err
}
