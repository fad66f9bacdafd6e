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

	"arbe.0sk.ar/runner/host/rows"
)

// migrations are the steps of the schema. They go forward only; a published one never changes.
//
//go:embed migrations/*.sql
var migrations embed.FS

// versions is the table of applied migrations.
const versions = "public.arbe_schema"

// migrationLock is the number of the advisory lock that one migration at a time holds.
const migrationLock = 0x61726265_0001

// Migrate brings the database at url to this program's schema, and returns the steps that it applied. The user of url
// becomes the owner of the tables. Migrate makes the role arbe_app where it is missing. Where a newer program has
// migrated the database it changes nothing, and returns rows.ErrNewer if this program can't use that schema. It returns
// ErrRole.
func Migrate(ctx context.Context, url string) (applied []Migration, err error) {
	err = withProvider(ctx, url, func(conn *pgx.Conn, p *goose.Provider) error {
		if _, err := conn.Exec(ctx, "select pg_advisory_lock($1)", int64(migrationLock)); err != nil {
			return err // the lock ends with the connection
		}
		if _, err := checkSchema(ctx, conn); !errors.Is(err, rows.ErrOlder) {
			return err // nil: there is nothing to do
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

// withConnection calls f with a connection of its own to the database at url.
func withConnection(ctx context.Context, url string, f func(*pgx.Conn) error) (err error) {
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
	if err := f(conn); err != nil {
		return explained(err)
	}
	return nil
}

// withProvider is withConnection with what applies the migrations.
func withProvider(ctx context.Context, url string, f func(*pgx.Conn, *goose.Provider) error) error {
	return withConnection(ctx, url, func(conn *pgx.Conn) (err error) {
		files, err := fs.Sub(migrations, "migrations")
		if err != nil {
			return err
		}
		store, err := database.NewStore(database.DialectPostgres, versions)
		if err != nil {
			return err
		}
		db := stdlib.OpenDB(*conn.Config())
		defer func() { err = errors.Join(err, db.Close()) }()
		p, err := goose.NewProvider("", db, files, goose.WithStore(store), goose.WithDisableGlobalRegistry(true),
			goose.WithLogger(goose.NopLogger()))
		if err != nil {
			return err
		}
		return f(conn, p)
	})
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
