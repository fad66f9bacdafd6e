package control_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
)

// empty returns the address of an empty database.
func empty(t *testing.T, name, owner string) string {
	t.Helper()
	s := databases.Server(t)
	check(t, s.Exec(t.Context(), "create database "+name+" owner "+owner))
	t.Cleanup(func() { check(t, s.Exec(context.Background(), "drop database "+name+" with (force)")) })
	return s.URL(owner, name)
}

// Several programs may migrate a database at the same time; a further one changes nothing.
func TestMigrate(t *testing.T) {
	url := empty(t, "migrate", "arbe")
	s := must(control.ReadStatus(t.Context(), url))(t)
	if len(s.Migrations) == 0 || !s.Migrations[0].Applied.IsZero() {
		t.Errorf("before: %+v", s)
	}
	_, err := control.Open(t.Context(), url, control.Config{})
	is(t, err, rows.ErrOlder)
	var all sync.WaitGroup
	var mu sync.Mutex
	applied := 0
	for range 4 {
		all.Go(func() {
			done, err := control.Migrate(t.Context(), url)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			applied += len(done)
		})
	}
	all.Wait()
	after := must(control.ReadStatus(t.Context(), url))(t)
	last := after.Migrations[len(after.Migrations)-1]
	if applied != len(after.Migrations) || last.Applied.IsZero() {
		t.Errorf("%d applied, status %+v", applied, after)
	}
	must(control.Open(t.Context(), url, control.Config{}))(t).Close()
}

// A program uses the schema of a newer one whose steps need no more than it knows, and changes nothing of it.
func TestNewer(t *testing.T) {
	url := databases.New(t)
	add := `insert into arbe_schema (version_id, is_applied) values (999, true);
		insert into schema_steps (step, needs) select 999, max(needs) from schema_steps`
	c := connect(t, url)
	_ = must(c.Exec(t.Context(), add))(t)
	db, _ := openAt(t, url, control.Config{})
	newHouse(t, db)
	if done := must(control.Migrate(t.Context(), url))(t); len(done) > 0 {
		t.Errorf("applied %v", done)
	}
	all := must(control.ReadStatus(t.Context(), url))(t).Migrations
	if last := all[len(all)-1]; last.Version != 999 || last.Name != "" || last.Applied.IsZero() {
		t.Errorf("the newest step: %+v", last)
	}
}

// A program that knows less than a newer schema needs refuses it: at its start, and while it runs. It is well again
// once the schema is.
func TestNewerNeedsMore(t *testing.T) {
	url := databases.New(t)
	running, _ := openAt(t, url, control.Config{})
	h := newHouse(t, running)
	c := connect(t, url)
	_ = must(c.Exec(t.Context(), `insert into arbe_schema (version_id, is_applied) values (999, true);
		insert into schema_steps (step, needs) values (999, 998)`))(t)
	_, openErr := control.Open(t.Context(), url, control.Config{})
	_, migrateErr := control.Migrate(t.Context(), url)
	_, statusErr := control.ReadStatus(t.Context(), url)
	_, hostErr := running.Host().Houses(t.Context())
	_, memberErr := running.As(h.owner).Houses(t.Context())
	readyErr := control.StoreOf(running).Unserved(t.Context())
	if !strings.HasPrefix(readyErr.Error(), rows.ErrNewer.Error()) {
		t.Errorf("for everybody: %v", readyErr)
	}
	for _, err := range []error{openErr, migrateErr, statusErr, hostErr, memberErr, readyErr} {
		if !errors.Is(err, rows.ErrNewer) ||
			!strings.Contains(err.Error(), "its schema is 999, for programs that know step 998, and this one knows ") {
			t.Errorf("got %v", err)
		}
	}
	_ = must(c.Exec(t.Context(), `delete from schema_steps where step = 999`))(t)
	for err := hostErr; err != nil && pause.For(t.Context(), 10*time.Millisecond); {
		is(t, err, rows.ErrNewer)
		_, err = running.Host().Houses(t.Context())
	}
}

// A schema that lacks a step is older, and the error names the step.
func TestOlder(t *testing.T) {
	url := empty(t, "older", "arbe")
	_, err := control.Open(t.Context(), url, control.Config{})
	is(t, err, rows.ErrOlder)
	if !strings.Contains(err.Error(), "run arbe db migrate (it lacks 00001_schema.sql, 00002_holds.sql, ") {
		t.Errorf("empty: %v", err)
	}
	check(t, control.MigrateTo(t.Context(), url, 11))
	_, err = control.Open(t.Context(), url, control.Config{})
	is(t, err, rows.ErrOlder)
	if !strings.Contains(err.Error(), "(it lacks 00012_runs.sql, ") {
		t.Errorf("at step 11: %v", err)
	}
}

// A user who may not make the role of requests gets the statements for one who may, and does without once it is made.
func TestRole(t *testing.T) {
	s := databases.Server(t)
	check(t, s.Exec(t.Context(), "create role plain login"))
	url := empty(t, "plain", "plain")
	_, err := control.Migrate(t.Context(), url)
	is(t, err, control.ErrRole)
	if !strings.Contains(err.Error(), `grant arbe_app to \"plain\"`) {
		t.Errorf("got %v", err)
	}
	check(t, s.Exec(t.Context(), "grant arbe_app to plain"))
	must(control.Migrate(t.Context(), url))(t)
	must(control.Open(t.Context(), url, control.Config{}))(t).Close()
	_, err = control.Open(t.Context(), s.URL("arbe", "plain"), control.Config{})
	if err == nil {
		t.Error("another user than the owner opens the database")
	}
}

// On a hosted Postgres, whose administrator is no superuser and which grants each new table to the roles of its HTTP
// interface, those roles read and change nothing.
func TestHosted(t *testing.T) {
	s := databases.Server(t)
	check(t, s.Exec(t.Context(), "create role hosted login createrole bypassrls", "create role anon nologin",
		"create role authenticated nologin", "grant anon, authenticated, arbe_app to hosted"))
	url := empty(t, "hosted", "hosted")
	c := connect(t, url)
	_ = must(c.Exec(t.Context(), `
		alter default privileges in schema public grant all on tables to anon, authenticated;
		alter default privileges in schema public grant all on functions to anon, authenticated`))(t)
	must(control.Migrate(t.Context(), url))(t)
	if s := must(control.ReadStatus(t.Context(), url))(t); len(s.Lacks) > 0 || len(s.Extra) > 0 {
		t.Errorf("status: lacks %q, extra %q", s.Lacks, s.Extra)
	}
	db := must(control.Open(t.Context(), url, control.Config{}))(t)
	defer db.Close()
	h := newHouse(t, db)
	houses, err := db.As(h.owner).Houses(t.Context())
	if err != nil || len(houses) != 1 {
		t.Errorf("the owner has %v, %v", houses, err)
	}
	for _, role := range []string{"anon", "authenticated"} {
		for _, table := range tables(t, c) {
			tx := must(c.Begin(t.Context()))(t)
			_ = must(tx.Exec(t.Context(), "set local role "+role))(t)
			_, err := tx.Exec(t.Context(), "select from public."+table)
			if err == nil {
				t.Errorf("%s reads %s", role, table)
			}
			check(t, tx.Rollback(t.Context()))
		}
	}
}

// In a house that is older than the migration, bots answer chats that come later, and no older ones. Its rows have no
// settings.
func TestMigrateBots(t *testing.T) {
	url := empty(t, "bots", "arbe")
	check(t, control.MigrateTo(t.Context(), url, 7))
	c, ctx := connect(t, url), t.Context()
	_ = must(c.Exec(ctx, `
		insert into agents (id, kind, runtime) values ('00000000-0000-4000-8000-000000000001', 'bot', 'pi');
		insert into houses (id, name, created_at) values ('h', 'old', now() - interval '1 year');
		insert into members (house_id, agent_id, role)
			values ('h', '00000000-0000-4000-8000-000000000001', 'member');
		insert into threads (id, stream_id, house_id, created_at) values ('t', 't', 'h', now() - interval '1 year')`))(t)
	var before time.Time
	check(t, c.QueryRow(ctx, "select clock_timestamp()").Scan(&before))
	must(control.Migrate(ctx, url))(t)
	db := must(control.Open(ctx, url, control.Config{}))(t)
	defer db.Close()
	r := must(db.Room(ctx, "t"))(t)
	if !r.Since.After(before) || len(r.Bots) != 1 || r.Bots[0].Config != (rows.BotConfig{}) || r.Bots[0].House != "" {
		t.Errorf("migrated after %v: %+v", before, r)
	}
}
