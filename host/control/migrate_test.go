package control_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/host/control"
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
	if s.Database != 0 || len(s.Migrations) == 0 || !s.Migrations[0].Applied.IsZero() {
		t.Errorf("before: %+v", s)
	}
	_, err := control.Open(t.Context(), url, control.Config{})
	is(t, err, control.ErrOlder)
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
	if applied != len(after.Migrations) || after.Database != last.Version || last.Applied.IsZero() {
		t.Errorf("%d applied, status %+v", applied, after)
	}
	must(control.Open(t.Context(), url, control.Config{}))(t).Close()
}

// A program refuses the schema of a newer one.
func TestNewer(t *testing.T) {
	url := databases.New(t)
	const newer = "insert into arbe_schema (version_id, is_applied) values (999, true)"
	_ = must(connect(t, url).Exec(t.Context(), newer))(t)
	_, openErr := control.Open(t.Context(), url, control.Config{})
	_, migrateErr := control.Migrate(t.Context(), url)
	_, statusErr := control.ReadStatus(t.Context(), url)
	for _, err := range []error{openErr, migrateErr} {
		if !errors.Is(err, control.ErrNewer) || !strings.Contains(err.Error(), "999") {
			t.Errorf("got %v", err)
		}
	}
	check(t, statusErr)
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
