package control

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

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

// MigrateTo brings an empty database to the schema of an older program.
func MigrateTo(ctx context.Context, url string, version int64) error {
	return withProvider(ctx, url, func(conn *pgx.Conn, p *goose.Provider) error {
		if err := makeRole(ctx, conn); err != nil {
			return err
		}
		_, err := p.UpTo(ctx, version)
		return err
	})
}

// What follows makes and reads the states of rows that tests begin with.

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

// Due reports whether a task is to be taken.
func (q Queue) Due(ctx context.Context) (bool, error) { return q.due(ctx) }

// DeleteAgent deletes an agent with its memberships and the threads addressed to it. It returns ErrInUse for one that
// drives a thread. The host alone may.
func (s Scope) DeleteAgent(ctx context.Context, id string) error {
	return s.tx(ctx, "delete agent "+id, func(tx pgx.Tx) error {
		err := exec(ctx, tx, "agent", `delete from agents where id = $1`, id)
		return inUse(err, "archive the agent instead")
	})
}

// Catalog describes the database at url.
func Catalog(ctx context.Context, url string) (lines []string, err error) {
	err = withConnection(ctx, url, func(conn *pgx.Conn) error {
		lines, err = readCatalog(ctx, conn)
		return err
	})
	return lines, err
}
