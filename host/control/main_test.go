package control_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// The databases of the tests, and those of tests that kill the server.
var (
	databases = postgres.Databases{Prepare: migrate}
	killable  = postgres.Databases{Prepare: migrate}
)

func migrate(ctx context.Context, url string) error {
	_, err := control.Migrate(ctx, url)
	return err
}

func TestMain(m *testing.M) {
	surroundings.Enter()
	os.Exit(postgres.Run(m, &databases, &killable))
}

// must fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails the test where an error is another one.
func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

// open opens the database that the tests share: each has houses of its own.
func open(t testing.TB, c control.Config) (db *control.DB, url string) {
	t.Helper()
	return openAt(t, databases.Shared(t), c)
}

// openAlone opens a database of the test's own.
func openAlone(t testing.TB, c control.Config) (db *control.DB, url string) {
	t.Helper()
	return openAt(t, databases.New(t), c)
}

func openAt(t testing.TB, url string, c control.Config) (*control.DB, string) {
	t.Helper()
	db := must(control.Open(t.Context(), url, c))(t)
	t.Cleanup(db.Close)
	return db, url
}

// connect returns a connection.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	c := must(pgx.Connect(t.Context(), url))(t)
	t.Cleanup(func() { check(t, c.Close(context.Background())) })
	return c
}

// house is a house with its people, a bot and an environment.
type house struct {
	id, env            string
	owner, member, bot string
}

func newHouse(t testing.TB, db *control.DB) house {
	t.Helper()
	ctx, host := t.Context(), db.Host()
	h := house{owner: uuid.NewString(), member: uuid.NewString()}
	check(t, host.CreateHuman(ctx, h.owner, "Owner"))
	check(t, host.CreateHuman(ctx, h.member, "Member"))
	h.id = must(host.CreateHouse(ctx, "a house", h.owner))(t).ID
	must(host.AddMember(ctx, h.id, h.member, rows.RoleMember))(t)
	h.bot = must(host.CreateBot(ctx, rows.NewBot{Name: "Bot", Runtime: "pi", House: h.id}))(t).ID
	h.env = must(host.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "base"}))(t).ID
	return h
}
