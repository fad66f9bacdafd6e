// Package control keeps the control plane's rows on Postgres: houses, members, agents, environments, secrets, sandboxes
// and threads.
//
// Rows are for what is queried and owned. A thread's log is the truth about its runs: a row's columns about them,
// the status above all, are a cache, and are rebuilt from the log.
//
// The database keeps houses apart, not this package. Each reference between rows of a house is a composite key with the
// house, so that no row can name another house's. Row level security holds the role of requests, arbe_app, to the
// houses that the transaction's agent is a member of; only owners of a house write its members and secrets. The role
// that ran the migrations owns the tables, and is not held: it is the host's.
//
// A Scope is the view of one agent, or the host's. Each of its methods is one transaction, whose waits are bounded, and
// may be repeated after rows.ErrAway: whether a transaction whose connection broke was committed is not known.
//
// The caller closes a DB. Nothing runs in the background but the pool's connections.
package control

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"arbe.0sk.ar/runner/host/rows"
)

// AppRole is the role of requests. It may not log in: the owner of the tables is a member of it.
const AppRole = "arbe_app"

// Config bounds the use of a database. A zero value stands for the default.
type Config struct {
	Connections int           // at once; pool_max_conns of the address outranks it. Default 10
	Statement   time.Duration // the longest statement. Default 10 s
	Lock        time.Duration // the longest wait for a lock. Default 5 s
	Call        time.Duration // the longest call, the wait for a connection included. Default 30 s
}

func (c Config) withDefaults() Config {
	if c.Connections == 0 {
		c.Connections = 10
	}
	if c.Statement == 0 {
		c.Statement = 10 * time.Second
	}
	if c.Lock == 0 {
		c.Lock = 5 * time.Second
	}
	if c.Call == 0 {
		c.Call = 30 * time.Second
	}
	return c
}

// connectWait bounds a connection's start.
const connectWait = 10 * time.Second

// DB is a database with this package's schema. Its methods may be called at the same time.
type DB struct {
	pool    *pgxpool.Pool
	config  Config
	schema  string // the statement that ends a transaction where the schema is not for this program; "" before check
	require string // the statement that ends a transaction of another log; "" for none, see Of
	refused *atomic.Pointer[refused]
}

// Open connects to the database at url, as pgx reads it: TLS by sslmode, more by pool_… parameters. It returns
// rows.ErrNewer where a newer program has migrated the database to a schema that this one can't use, rows.ErrOlder
// where it is to be migrated, and ErrOwner where url names another user than the owner of the tables.
func Open(ctx context.Context, url string, c Config) (*DB, error) {
	c = c.withDefaults()
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("address of the database: %w", withoutURL(err))
	}
	if !hasParameter(url, "pool_max_conns") {
		pc.MaxConns = int32(min(max(c.Connections, 1), 1000))
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = connectWait
	}
	label(pc.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db := &DB{pool: pool, config: c, refused: new(atomic.Pointer[refused])}
	if err := db.check(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, nil
}

// Close closes the connections. It waits for those in use.
func (db *DB) Close() { db.pool.Close() }

// label names the connections of a program in pg_stat_activity.
func label(c *pgx.ConnConfig) {
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "arbe"
	}
}

// check compares the database's schema with this program's, and has later transactions compare it.
func (db *DB) check(ctx context.Context) error {
	return db.Host().tx(ctx, "read the schema", func(tx pgx.Tx) error {
		known, err := checkSchema(ctx, tx)
		if err != nil {
			return err
		}
		var owner, user string
		var bypasses bool
		err = tx.QueryRow(ctx, `
			select pg_get_userbyid(c.relowner), current_user, r.rolsuper or r.rolbypassrls
			from pg_class c, pg_roles r where c.oid = 'public.threads'::regclass and r.rolname = current_user`,
		).Scan(&owner, &user, &bypasses)
		if err == nil && owner != user && !bypasses {
			return fmt.Errorf("%w: connect as %s, not as %s", ErrOwner, owner, user)
		}
		db.schema = fmt.Sprintf("; select require_schema(%d)", known)
		return err
	})
}

// Scope gives a caller access to rows: those of one agent's houses, or all.
type Scope struct {
	open  func(ctx context.Context) (*DB, error) // for each call: a Store's database may be away
	role  string                                 // the statements that take an agent's rights; "" for the host's
	fault error                                  // of each call; nil for none

	barred []string // providers whose boxes none of its tasks gets
}

// As returns the scope of an agent. Row level security holds it. An id that is no UUID is ErrInvalid in each call.
func (db *DB) As(agent string) Scope { return db.Host().as(agent) }

// Host returns the scope of the host: all rows.
func (db *DB) Host() Scope { return Scope{open: func(context.Context) (*DB, error) { return db, nil }} }

// Barring returns the scope, in which no task gets a box of one of these providers.
func (s Scope) Barring(providers []string) Scope {
	s.barred = providers
	return s
}

func (s Scope) as(agent string) Scope {
	id, err := uuid.Parse(agent)
	if err != nil {
		s.fault = rows.Refuse(rows.ErrInvalid, "the agent's id")
	}
	s.role = "; set local role " + AppRole + "; set local app.agent_id = '" + id.String() + "'"
	return s
}

// begin returns the statements that begin a transaction of any scope. All of them end with the transaction, so that a
// connection carries nothing to the next one.
func (db *DB) begin() string {
	return fmt.Sprintf("begin; set local search_path = public; set local statement_timeout = %d; "+
		"set local lock_timeout = %d; set local idle_in_transaction_session_timeout = %d",
		db.config.Statement.Milliseconds(), db.config.Lock.Milliseconds(), db.config.Call.Milliseconds()) +
		db.schema + db.require
}

// attempts is how often a transaction runs that a deadlock or a conflict has ended.
const attempts = 3

// tx runs f in a transaction. f may run several times. It returns a *rows.Refusal as it is; what names the work in
// other errors.
func (s Scope) tx(ctx context.Context, what string, f func(pgx.Tx) error) error {
	if s.fault != nil {
		return s.fault
	}
	db, err := s.open(ctx)
	if err != nil {
		return err
	}
	if r := db.refused.Load(); r != nil && time.Since(r.at) < refusedFor {
		return fmt.Errorf("%s: %w", what, r.err)
	}
	limited, cancel := context.WithTimeout(ctx, db.config.Call)
	defer cancel()
	if err = db.run(limited, db.begin()+s.role, f); err == nil {
		return nil
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case limited.Err() != nil:
		err = fmt.Errorf("%w: no answer after %s", rows.ErrTimeout, db.config.Call)
	default:
		if err = explained(err); errors.Is(err, rows.ErrOtherLog) || errors.Is(err, rows.ErrNewer) {
			db.refused.Store(&refused{err, time.Now()})
		}
	}
	if errors.As(err, new(*rows.Refusal)) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// run runs f in a transaction, again where that may succeed then.
func (db *DB) run(ctx context.Context, begin string, f func(pgx.Tx) error) error {
	stale := int(db.pool.Stat().MaxConns()) // connections that a restart of the database may have left
	for run := 1; ; {
		began := false
		err := pgx.BeginTxFunc(ctx, db.pool, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
			began = true
			return f(tx)
		})
		if began && run < attempts && conflicts(err) {
			run++
		} else if !began && stale > 0 && isBroken(err) {
			stale--
		} else {
			return err
		}
	}
}
