package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"arbe.0sk.ar/runner/host/rows"
)

// A program can use a schema that lacks none of the steps that it knows. A newer schema is one for this program where
// its steps say so: each names, in the table schema_steps, the step that a program has to know. A step that only adds
// needs no more than the step before it, so the hosts of one database are upgraded one after the other. The function
// require_schema refuses a program that knows too little when it opens the database, and in each transaction: the
// schema may change while the program runs.

// codeNewer is the SQLSTATE that the function require_schema raises.
const codeNewer = "ARBE2"

// Migration is a step of the schema.
type Migration struct {
	Version int64
	Name    string    // of its file; "" for a step that this program does not know
	Applied time.Time // the zero time: not yet
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// steps returns the migrations that this program knows, in their order.
func steps() (all []Migration, err error) {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		v, err := goose.NumericComponent(f.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, Migration{Version: v, Name: f.Name()})
	}
	return all, nil
}

// Schema returns the number of the newest step that this program knows.
func Schema() (newest int64, err error) {
	all, err := steps()
	if err == nil {
		newest = all[len(all)-1].Version
	}
	return newest, err
}

// applied returns the times at which a database got the steps that it has.
func applied(ctx context.Context, q querier) (at map[int64]time.Time, err error) {
	at = map[int64]time.Time{}
	there := false
	if err := q.QueryRow(ctx, "select to_regclass('"+versions+"') is not null").Scan(&there); err != nil || !there {
		return at, err
	}
	// goose has a row of the version 0, too.
	found, err := q.Query(ctx, "select version_id, tstamp from "+versions+" where is_applied and version_id > 0")
	if err != nil {
		return nil, err
	}
	var version int64
	var when time.Time
	_, err = pgx.ForEachRow(found, []any{&version, &when}, func() error {
		at[version] = when
		return nil
	})
	return at, err
}

// checkSchema returns the newest step that this program knows. It returns rows.ErrOlder or rows.ErrNewer where the
// program can't use the database's schema.
func checkSchema(ctx context.Context, q querier) (known int64, err error) {
	all, err := steps()
	if err != nil {
		return 0, err
	}
	at, err := applied(ctx, q)
	if err != nil {
		return 0, err
	}
	var lacks []string
	for _, m := range all {
		known = m.Version
		if at[m.Version].IsZero() {
			lacks = append(lacks, m.Name)
		}
	}
	if n := len(lacks); n > 0 {
		if n > mostNamed {
			lacks = append(lacks[:mostNamed], fmt.Sprint(n-mostNamed, " more"))
		}
		return known, &rows.SchemaError{Kind: rows.ErrOlder, Steps: "it lacks " + strings.Join(lacks, ", ")}
	}
	ok := false
	return known, q.QueryRow(ctx, "select true from public.require_schema($1)", known).Scan(&ok)
}

// mostNamed bounds the steps that an error names.
const mostNamed = 3

// Status is how a database's schema stands to this program's.
type Status struct {
	Migrations []Migration // those that this program knows, and those of newer ones that the database has

	// Where the database has just the steps that this program knows: what it lacks of what they make, and what their
	// tables and functions have beyond. Each line names the table or function, and after a tab the thing.
	Lacks, Extra []string
}

// ReadStatus compares the schema of the database at url with this program's. It returns rows.ErrNewer with the status
// where this program can't use that schema.
func ReadStatus(ctx context.Context, url string) (s Status, err error) {
	err = withConnection(ctx, url, func(conn *pgx.Conn) error {
		at, err := applied(ctx, conn)
		if err != nil {
			return err
		}
		if s.Migrations, err = steps(); err != nil {
			return err
		}
		for i, m := range s.Migrations {
			s.Migrations[i].Applied = at[m.Version]
			delete(at, m.Version)
		}
		for _, version := range slices.Sorted(maps.Keys(at)) {
			s.Migrations = append(s.Migrations, Migration{Version: version, Applied: at[version]})
		}
		if _, err := checkSchema(ctx, conn); err != nil || len(at) > 0 {
			return notOlder(err)
		}
		has, err := readCatalog(ctx, conn)
		s.Lacks, s.Extra = compareCatalog(strings.Split(strings.TrimSpace(catalogOfSteps), "\n"), has)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("status of the database: %w", err)
	}
	return s, nil
}

// notOlder returns nil for rows.ErrOlder, which a status shows by its steps, else err.
func notOlder(err error) error {
	if errors.Is(err, rows.ErrOlder) {
		return nil
	}
	return err
}
