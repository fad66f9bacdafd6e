package control

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// migrations are the steps of the schema. They go forward only; a published one never changes.
//
//go:embed migrations/*.sql
var migrations embed.FS

// versions is the table of applied migrations.
const versions = "public.arbe_schema"

// migrationLock is the number of the advisory lock that one migration at a time holds.
const migrationLock = 0x61726265_0001

// Migration is a step of the schema.
type Migration struct {
	Version int64
	Name    string    // of its file
	Applied time.Time // the zero time: not yet
}

// Status is how a database's schema stands to this program's.
type Status struct {
	Migrations []Migration // those that this program knows
	Database   int64       // the newest version that the database has; 0 for none
}

// Migrate brings the database at url to this program's schema, and returns the steps that it applied. The user of url
// becomes the owner of the tables. Migrate makes the role arbe_app where it is missing. It returns ErrNewer, and
// ErrRole.
func Migrate(ctx context.Context, url string) (applied []Migration, err error) {
	err = withProvider(ctx, url, func(conn *pgx.Conn, p *goose.Provider) error {
		if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", int64(migrationLock)); err != nil {
			return err // the lock ends with the connection
		}
		if err := checkVersion(ctx, conn); err != nil && !errors.Is(err, ErrOlder) {
			return err
		}
		if err := makeRole(ctx, conn); err != nil {
			return err
		}
		results, err := p.Up(ctx)
		if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
			results = partial.Applied
		}
		for _, r := range results {
			applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path, Applied: time.Now()})
		}
		return err
	})
	if err != nil {
		return applied, fmt.Errorf("migrate the database: %w", err)
	}
	return applied, nil
}

// ReadStatus compares the schema of the database at url with this program's.
func ReadStatus(ctx context.Context, url string) (s Status, err error) {
	err = withProvider(ctx, url, func(conn *pgx.Conn, p *goose.Provider) error {
		at := map[int64]time.Time{}
		if there, err := migrated(ctx, conn); err != nil {
			return err
		} else if there {
			rows, err := conn.Query(ctx, "select version_id, tstamp from "+versions+" where is_applied order by id")
			if err != nil {
				return err
			}
			var version int64
			var applied time.Time
			_, err = pgx.ForEachRow(rows, []any{&version, &applied}, func() error {
				at[version], s.Database = applied, max(s.Database, version)
				return nil
			})
			if err != nil {
				return err
			}
		}
		for _, source := range p.ListSources() {
			s.Migrations = append(s.Migrations, Migration{source.Version, source.Path, at[source.Version]})
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("status of the database: %w", err)
	}
	return s, nil
}

// withProvider calls f with a connection of its own and what applies the migrations.
func withProvider(ctx context.Context, url string, f func(*pgx.Conn, *goose.Provider) error) (err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("address of the database: %w", withoutURL(err))
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectWait
	}
	label(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return explained(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	store, err := database.NewStore(database.DialectPostgres, versions)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := goose.NewProvider("", db, steps, goose.WithStore(store), goose.WithDisableGlobalRegistry(true),
		goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	if err := f(conn, p); err != nil {
		return explained(err)
	}
	return nil
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// migrated reports whether a database has the table of applied migrations.
func migrated(ctx context.Context, q querier) (there bool, err error) {
	err = q.QueryRow(ctx, "select to_regclass('"+versions+"') is not null").Scan(&there)
	return there, err
}

// checkVersion returns ErrNewer or ErrOlder where the database's schema is not this program's.
func checkVersion(ctx context.Context, q querier) error {
	latest, err := newest()
	if err != nil {
		return err
	}
	there, err := migrated(ctx, q)
	if err != nil {
		return err
	}
	var has int64
	if there {
		err := q.QueryRow(ctx, "select coalesce(max(version_id), 0) from "+versions+" where is_applied").Scan(&has)
		if err != nil {
			return err
		}
	}
	switch {
	case has > latest:
		return fmt.Errorf("%w: its schema is %d, and this program knows %d", ErrNewer, has, latest)
	case has < latest:
		return fmt.Errorf("%w (its schema is %d of %d)", ErrOlder, has, latest)
	}
	return nil
}

// newest returns the version of the newest migration.
func newest() (latest int64, err error) {
	entries, err := migrations.ReadDir("migrations")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		v, err := goose.NumericComponent(e.Name())
		if err != nil {
			return 0, err
		}
		latest = max(latest, v)
	}
	return latest, nil
}

// makeRole makes the role of requests and lets this user take it, where that is missing.
func makeRole(ctx context.Context, conn *pgx.Conn) error {
	var user string
	var there, takes bool
	err := conn.QueryRow(ctx, "select current_user, exists (select from pg_roles where rolname = $1)", AppRole).
		Scan(&user, &there)
	if err != nil {
		return err
	}
	by := "create role " + AppRole + " nologin; grant " + AppRole + " to " + pgx.Identifier{user}.Sanitize()
	refused := func(err error) error {
		if pe := (*pgconn.PgError)(nil); errors.As(err, &pe) && pe.Code == "42501" {
			return fmt.Errorf("%w, and %s may not make it: have an administrator run %q", ErrRole, user, by)
		}
		return err
	}
	if !there {
		if _, err := conn.Exec(ctx, "create role "+AppRole+" nologin"); err != nil {
			return refused(err)
		}
	}
	// Of a role that it makes a user is a member since Postgres 16, but may not take it.
	power := "MEMBER"
	if major(conn) >= 16 {
		power = "SET"
	}
	if err := conn.QueryRow(ctx, "select pg_has_role($1, $2)", AppRole, power).Scan(&takes); err != nil {
		return err
	}
	if !takes {
		if _, err := conn.Exec(ctx, "grant "+AppRole+" to current_user"); err != nil {
			return refused(err)
		}
	}
	return nil
}

// major returns the server's major version.
func major(conn *pgx.Conn) (v int) {
	_, _ = fmt.Sscanf(conn.PgConn().ParameterStatus("server_version"), "%d", &v) // 0 where it is of another form
	return v
}
