package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
)

// houseFlags are the flags of a server with houses.
func houseFlags() []cli.Flag {
	return []cli.Flag{
		databaseFlag(),
		&cli.StringFlag{
			Name: "login-keys", TakesFile: true,
			Usage: "let members log in by an identity provider, whose keys (a JSON Web Key Set) are at `URL`, or in\n" +
				"a file; needs --database, --login-issuer and --login-audience",
		},
		&cli.StringFlag{Name: "login-issuer", Usage: "`ISSUER` (iss) that the provider's tokens have"},
		&cli.StringFlag{Name: "login-audience", Usage: "`AUDIENCE` (aud) that the provider's tokens have"},
		&cli.StringFlag{
			Name: "secret-keys", EnvVars: []string{"ARBE_SECRET_KEYS"}, TakesFile: true,
			Usage: "seal the secrets that owners of houses put with the keys in `FILE`, of arbe secret key new",
		},
		secretKMSFlag(),
	}
}

// houseRows are the rows and the logins of a server's houses.
type houseRows struct {
	rows     member.Rows      // nil without a database
	store    rows.Store       // nil without a database
	provider *member.Provider // nil for none
	beside   besides          // what works on the rows beside the server
	close    func()
}

// houses opens the database that the flags name.
func (p *program) houses(c *cli.Context, logger *slog.Logger) (h houseRows, err error) {
	h.close = func() {}
	url, keys := c.String("database"), c.String("login-keys")
	issuer, audience := c.String("login-issuer"), c.String("login-audience")
	switch {
	case keys == "" && issuer == "" && audience == "":
	case keys == "" || issuer == "" || audience == "" || url == "":
		return h, cmdline.Usage("--login-keys, --login-issuer and --login-audience need each other, and --database")
	default:
		if h.provider, err = member.NewProvider(keys, issuer, audience, logger); err != nil {
			return h, cmdline.Usage("%v", err)
		}
	}
	if url == "" {
		return h, nil
	}
	r := &lateRows{url: url, logger: logger}
	if r.keys, err = serverKeys(c, logger); err != nil {
		return h, err
	}
	if err := r.try(c.Context); err != nil && !isAway(err) {
		return h, &cmdline.Exit{Status: exitConfig, Cause: err}
	}
	h.rows, h.store, h.beside, h.close = r, r, besides{r.project}, r.close
	return h, nil
}

// serverKeys returns the keyset that seals the secrets that members put, without a path for none. It has been read,
// unless a key management service that encrypts it does not answer: threads and runs do not need that.
func serverKeys(c *cli.Context, logger *slog.Logger) (seal.File, error) {
	path := c.String("secret-keys")
	if path == "" {
		return seal.File{}, nil
	}
	f, err := keysetFile(c, path)
	if err != nil {
		return f, err
	}
	switch _, err := seal.New(c.Context, f); {
	case errors.Is(err, fs.ErrNotExist):
		return f, cmdline.Unread("--secret-keys", err)
	case err != nil && f.KMS == nil:
		return f, &cmdline.Exit{Status: exitConfig, Cause: err}
	case err != nil:
		logger.Warn("keys of secrets not read: no secret can be put until they are", "error", err)
	}
	return f, nil
}

// isAway reports whether a database may answer later.
func isAway(err error) bool {
	return errors.Is(err, control.ErrAway) || errors.Is(err, control.ErrBusy) || errors.Is(err, control.ErrTimeout)
}

// reopenEvery is the time between two attempts to open a database that is away.
const reopenEvery = 5 * time.Second

// startWait is how long a server at its start waits for the log and the database to tell whether they belong together.
const startWait = 10 * time.Second

// lateRows are the rows of a database that may be away when the server starts, or of another log: threads and runs do
// not need it.
type lateRows struct {
	url    string
	logger *slog.Logger
	keys   seal.File // that seal secrets; without a path no secret is put

	// log returns the id of the server's log. It is set before the rows are used, and fails while that can't be read.
	log func(ctx context.Context) (string, error)

	db    atomic.Pointer[control.DB] // nil until it is open and of the server's log
	mu    sync.Mutex                 // guards the fields below, and is held while the database is opened
	conns *control.DB                // the open database, of any log; nil before
	tried time.Time
	why   error // of the last attempt; nil before any
	ended bool
}

// try opens the database, whatever its log is: an error that does not pass ends the server.
func (r *lateRows) try(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connect(ctx)
}

// start has the database bound to the server's log, or found bound so, before members are served. One that is away
// holds the server up no second time.
func (r *lateRows) start(ctx context.Context, streams *log.Log) {
	r.log = streams.Installation
	if r.conns == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	_, _ = r.open(limited) // it logs its error, and later calls try again
}

// connect opens the database where it is not open. The caller holds mu.
func (r *lateRows) connect(ctx context.Context) (err error) {
	if r.conns == nil {
		r.conns, err = control.Open(ctx, r.url, control.Config{})
	}
	return err
}

// bind opens the database, and binds it to the server's log or finds it bound so. The caller holds mu.
func (r *lateRows) bind(ctx context.Context) (*control.DB, error) {
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	id, err := r.log(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: the log that it is of is not known: %w", control.ErrAway, err)
	}
	if err := r.conns.Bind(ctx, id); err != nil {
		return nil, ofRows(err)
	}
	return r.conns.Of(id), nil
}

// ofRows makes the error of a database of another log a member.ErrOtherLog too.
func ofRows(err error) error {
	if errors.Is(err, control.ErrOtherLog) {
		return otherLog{err}
	}
	return err
}

type otherLog struct{ error }

func (o otherLog) Is(target error) bool { return target == member.ErrOtherLog }
func (o otherLog) Unwrap() error        { return o.error }

// open returns the database. It opens it where it is not open, once in a while.
func (r *lateRows) open(ctx context.Context) (*control.DB, error) {
	if db := r.db.Load(); db != nil {
		return db, nil
	}
	if !r.mu.TryLock() {
		return nil, fmt.Errorf("%w: it is being opened", control.ErrAway)
	}
	defer r.mu.Unlock()
	switch db := r.db.Load(); {
	case db != nil:
		return db, nil
	case r.ended:
		return nil, control.ErrAway
	case errors.Is(r.why, member.ErrOtherLog) && time.Since(r.tried) < reopenEvery:
		return nil, r.why
	case !r.tried.IsZero() && time.Since(r.tried) < reopenEvery:
		return nil, control.ErrAway
	}
	r.tried = time.Now()
	db, err := r.bind(ctx)
	if err != nil {
		if r.why == nil || r.why.Error() != err.Error() {
			r.logger.Warn("database not opened: members of houses have to wait", "error", err)
		}
		r.why = err
		return nil, err
	}
	r.logger.Info("database open")
	r.db.Store(db)
	return db, nil
}

// close closes the database, and waits for the calls that use it.
func (r *lateRows) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.conns != nil {
		r.conns.Close()
	}
}

// project makes the rows follow a server's log until ctx is done.
func (r *lateRows) project(ctx context.Context, s daemon.Serving) error {
	if s.Threads == nil {
		r.logger.Warn("rows do not follow the log: there is no index of threads")
		return nil
	}
	db, err := r.open(ctx)
	for ; err != nil; db, err = r.open(ctx) {
		if !pause.For(ctx, reopenEvery) {
			return nil
		}
	}
	p := control.Projector{
		DB: db, Index: s.Threads, Logger: r.logger,
		Knows: func(ctx context.Context, thread, run string) (bool, error) {
			_, is, err := s.Streams.ReceivedAt(ctx, thread, run+".running")
			return is, err
		},
	}
	return p.Run(ctx)
}

// Houses is member.Rows'.
func (r *lateRows) Houses(ctx context.Context, agent string) ([]string, error) {
	db, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := db.Houses(ctx, agent)
	return all, ofRows(err)
}

// HousesOf is member.Rows'.
func (r *lateRows) HousesOf(ctx context.Context, threads []string) (map[string]string, error) {
	db, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	all, err := db.HousesOf(ctx, threads)
	return all, ofRows(err)
}
