package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/singleflight"

	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
)

// Times of a Store.
const (
	reopenEvery = 5 * time.Second  // between two attempts to open a database that is away
	startWait   = 10 * time.Second // for the log and the database to tell whether they belong together, at the start
	askEvery    = time.Second      // between two questions of Unserved
	askWait     = 2 * time.Second  // for the answer to one
)

// Store is the rows of a server: rows.Store, and member.Rows. Its database may be away when the server starts, have
// another schema, or be of another log: threads and runs do not need it. The fields are set before it is used.
type Store struct {
	URL    string
	Keys   seal.File // that seal secrets; without a path no secret is put
	Logger *slog.Logger
	// Log returns the id of the server's log. It fails while that can't be read. Try alone does not need it.
	Log func(ctx context.Context) (string, error)
	// Barred are the providers whose boxes no task of a member gets.
	Barred []string

	db    atomic.Pointer[DB]    // nil until it is open and of the server's log
	shut  atomic.Pointer[error] // why it was not at the last attempt; nil before any
	mu    sync.Mutex            // guards the fields below, and is held while the database is opened
	conns *DB                   // the open database, of any log; nil before
	tried time.Time
	ended bool

	asked asked
}

// asked is the last result of Store.Unserved.
type asked struct {
	mu  sync.Mutex // guards the fields below, and is held while the database is asked
	at  time.Time
	why error
}

// As implements rows.Store.
func (st *Store) As(agent string) rows.Scope {
	s := Scope{open: st.Open, barred: st.Barred}
	if agent != "" {
		s = s.as(agent)
	}
	return memberScope{s, st}
}

// memberScope is the scope of an agent whose secrets the store seals.
type memberScope struct {
	Scope
	store *Store
}

// PutSecret implements rows.Secrets.
func (s memberScope) PutSecret(ctx context.Context, house, name string, value []byte) (v rows.Secret, err error) {
	st := s.store
	if st.Keys.Path == "" {
		return v, rows.ErrNoKeys
	}
	keys, err := seal.New(ctx, st.Keys) // the primary key may have been rotated since the last one
	if err != nil {
		st.Logger.Warn("keys of secrets not read", "error", err)
		const text = "this server can't read its keys for secrets now: its log has why"
		return v, &rows.Refusal{Kind: rows.ErrNoKeys, Text: text}
	}
	return Vault{Sealer: keys}.Put(ctx, s.Scope, house, name, value)
}

func (st *Store) host() Scope { return Scope{open: st.Open} }

// Houses implements member.Rows. An agent that is archived has none.
func (st *Store) Houses(ctx context.Context, agent string) ([]string, error) {
	return values[string](ctx, st.host().as(agent), "list the houses of agent "+agent,
		`select id from houses order by id`)
}

// HousesOf implements member.Rows.
func (st *Store) HousesOf(ctx context.Context, threads []string) (map[string]string, error) {
	type row struct{ ID, House string }
	found, err := list[row](ctx, st.host(), "read the houses of threads",
		`select id, house_id as house from threads where id = any ($1)`, threads)
	houses := make(map[string]string, len(found))
	for _, r := range found {
		houses[r.ID] = r.House
	}
	return houses, err
}

// Closed implements member.Rows.
func (st *Store) Closed(ctx context.Context, thread string) (bool, error) {
	closed, err := values[bool](ctx, st.host(), "read thread "+thread,
		`select true from threads where id = $1 and status = 'closed'`, thread)
	return len(closed) > 0, err
}

// Room returns the room of a thread, as DB.Room does.
func (st *Store) Room(ctx context.Context, thread string) (rows.Room, error) {
	db, err := st.Open(ctx)
	if err != nil {
		return rows.Room{}, err
	}
	return db.Room(ctx, thread)
}

// Today returns what bots have cost today, as Scope.Today does.
func (st *Store) Today(ctx context.Context) ([]rows.Spent, error) { return st.host().Today(ctx) }

// Try opens the database, whatever its log is. An error that is not rows.IsUnserved ends the server.
func (st *Store) Try(ctx context.Context) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	err := st.connect(ctx)
	if rows.IsUnserved(err) {
		st.failed(err)
	}
	return err
}

// failed notes the error of an attempt to open the database. The caller holds mu.
func (st *Store) failed(err error) {
	st.tried = time.Now()
	if was := st.shut.Swap(&err); was == nil || (*was).Error() != err.Error() {
		st.Logger.Warn("database not opened: members of houses have to wait", "error", err)
	}
}

// Start has the database bound to the server's log, or found bound so, before members are served. One that is away
// holds the server up no second time.
func (st *Store) Start(ctx context.Context) {
	if st.conns == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	_, _ = st.Open(limited) // it logs its error, and later calls try again
}

// connect opens the database where it is not open. The caller holds mu.
func (st *Store) connect(ctx context.Context) (err error) {
	if st.conns == nil {
		st.conns, err = Open(ctx, st.URL, Config{})
	}
	return err
}

// bind opens the database, and binds it to the server's log or finds it bound so. The caller holds mu.
func (st *Store) bind(ctx context.Context) (*DB, error) {
	if err := st.connect(ctx); err != nil {
		return nil, err
	}
	id, err := st.Log(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the log that it is of is not known: %w", rows.ErrAway, err)
	}
	if err := st.conns.Bind(ctx, id); err != nil {
		return nil, err
	}
	return st.conns.Of(id), nil
}

// Open returns the database. It opens it where it is not open, once in a while.
func (st *Store) Open(ctx context.Context) (*DB, error) {
	if db := st.db.Load(); db != nil {
		return db, nil
	}
	if !st.mu.TryLock() {
		return nil, st.whyShut()
	}
	defer st.mu.Unlock()
	switch db := st.db.Load(); {
	case db != nil:
		return db, nil
	case st.ended:
		return nil, rows.ErrAway
	case !st.tried.IsZero() && time.Since(st.tried) < reopenEvery:
		return nil, st.whyShut()
	}
	db, err := st.bind(ctx)
	if err != nil {
		st.failed(err)
		return nil, err
	}
	st.Logger.Info("database open")
	st.db.Store(db)
	return db, nil
}

// whyShut returns why the last attempt has not opened the database.
func (st *Store) whyShut() error {
	if err := st.shut.Load(); err != nil {
		return unserved(*err)
	}
	return fmt.Errorf("%w: it is being opened", rows.ErrAway)
}

// unserved returns what everybody may read of why rows can't be read.
func unserved(err error) error {
	if schema, is := errors.AsType[*rows.SchemaError](err); is {
		return schema
	}
	if errors.Is(err, rows.ErrOtherLog) {
		return rows.ErrOtherLog
	}
	return rows.ErrAway
}

// Unserved returns why rows can't be read now, in words for everybody; nil where they can. It asks an open database, at
// most once a second.
func (st *Store) Unserved(ctx context.Context) error {
	db := st.db.Load()
	if db == nil {
		return st.whyShut() // Open asks again
	}
	a := &st.asked
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at.IsZero() && time.Since(a.at) < askEvery {
		return a.why
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWait) // the result is not this caller's alone
	defer cancel()
	err := db.Host().tx(limited, "ask whether rows can be read", func(pgx.Tx) error { return nil })
	if a.at, a.why = time.Now(), nil; err != nil {
		a.why = unserved(err)
	}
	return a.why
}

// Close closes the database, and waits for the calls that use it.
func (st *Store) Close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ended = true
	if st.conns != nil {
		st.conns.Close()
	}
}

// Project makes the rows follow the server's log until ctx is done. all is the index of its threads; knows reports
// whether the log of a thread has a signal of a run.
func (st *Store) Project(
	ctx context.Context, all *index.Index, knows func(ctx context.Context, thread, run string) (bool, error),
) error {
	db, err := st.Open(ctx)
	for ; err != nil; db, err = st.Open(ctx) {
		if !pause.For(ctx, reopenEvery) {
			return nil
		}
	}
	p := Projector{DB: db, Index: all, Logger: st.Logger, Knows: knows}
	return p.Run(ctx)
}

// openFor bounds the time in which a database is opened.
const openFor = 20 * time.Second

// Once returns what opens a database once: open is called again only after an error. Callers at the same time share one
// call of open, which is bounded; each waits for as long as its own context lasts.
func Once(open func(context.Context) (*DB, error)) func(context.Context) (*DB, error) {
	var db atomic.Pointer[DB]
	var attempts singleflight.Group
	return func(ctx context.Context) (*DB, error) {
		if got := db.Load(); got != nil {
			return got, nil
		}
		result := attempts.DoChan("", func() (any, error) {
			if got := db.Load(); got != nil {
				return got, nil
			}
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), openFor)
			defer cancel()
			got, err := open(limited)
			if err == nil {
				db.Store(got)
			}
			return got, err
		})
		select {
		case r := <-result:
			got, _ := r.Val.(*DB)
			return got, r.Err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
