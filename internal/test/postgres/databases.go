package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Owner is the role that owns the databases of tests: no superuser, but it may make roles.
const Owner = "arbe"

// Databases are databases of a test program, on one server that the first test to ask for one starts. TestMain calls
// Run.
type Databases struct {
	// Prepare makes the template of the databases: it gets the address of an empty one.
	Prepare func(ctx context.Context, url string) error

	once   sync.Once // guards the fields below
	server *Server
	err    error

	mu     sync.Mutex // guards the fields below
	last   int
	shared string // address
}

// Run runs the tests, and then ends the servers of all. It returns the exit status.
func Run(m *testing.M, all ...*Databases) (status int) {
	status = m.Run()
	for _, d := range all {
		if d.server == nil {
			continue
		}
		if err := d.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = max(status, 1)
		}
	}
	return status
}

// template is the name of the database that the others are copies of.
const template = "arbe_template"

// Server returns the server. Tests that kill it have Databases apart from the other tests', and restart it.
func (d *Databases) Server(t testing.TB) *Server {
	t.Helper()
	d.once.Do(func() { d.err = d.start() })
	if d.err != nil {
		t.Fatal(d.err)
	}
	return d.server
}

func (d *Databases) start() error {
	p, err := Find()
	if err != nil {
		return err
	}
	if d.server, err = Start(p); err != nil {
		return err
	}
	return d.server.Template(context.Background(), d.Prepare)
}

// Template makes the role Owner and the template of the server's databases.
func (s *Server) Template(ctx context.Context, prepare func(ctx context.Context, url string) error) error {
	err := s.Exec(ctx, "create role "+Owner+" login createrole", "create database "+template+" owner "+Owner)
	if err != nil || prepare == nil {
		return err
	}
	return prepare(ctx, s.URL(Owner, template))
}

// New makes a database of this name, a copy of the template, and returns its address for its owner.
func (s *Server) New(ctx context.Context, name string) (url string, err error) {
	err = s.Exec(ctx, "create database "+name+" template "+template+" owner "+Owner)
	return s.URL(Owner, name), err
}

// Exec executes statements as the superuser, each in a transaction of its own.
func (s *Server) Exec(ctx context.Context, statements ...string) (err error) {
	c, err := pgx.Connect(ctx, s.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	for _, sql := range statements {
		if _, err := c.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// Own starts a server for one test, which may kill it, and returns it with an empty database. It is stopped when the
// test ends.
func Own(t testing.TB) (s *Server, url string) {
	t.Helper()
	programs, err := Find()
	if err == nil {
		s, err = Start(programs)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err = s.Template(t.Context(), nil); err == nil {
		url, err = s.New(t.Context(), "arbe")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, url
}

// Shared returns the address of a database that all tests may use, for its owner. A copy takes a third of a second.
func (d *Databases) Shared(t testing.TB) (url string) {
	t.Helper()
	s := d.Server(t)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared == "" {
		url, err := s.New(t.Context(), "shared")
		if err != nil {
			t.Fatal(err)
		}
		d.shared = url
	}
	return d.shared
}

// New makes a database, a copy of the template, and returns its address for its owner. It is dropped at the end of the
// test.
func (d *Databases) New(t testing.TB) (url string) {
	t.Helper()
	s := d.Server(t)
	d.mu.Lock()
	d.last++
	name := fmt.Sprint("test_", d.last)
	d.mu.Unlock()
	url, err := s.New(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Exec(context.Background(), "drop database "+name+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	return url
}
