package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// Of servers with a log each that open a new database at the same time, one gets it, and keeps it.
func TestBind(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	if b := must(db.Log(t.Context()))(t); b.Log != "" {
		t.Fatalf("a new database is of the log %s", b.Log)
	}
	const servers = 8
	var opened sync.WaitGroup
	errs := make([]error, servers)
	for i := range servers {
		own, _ := openAt(t, url, control.Config{})
		opened.Go(func() { errs[i] = own.Bind(t.Context(), fmt.Sprint("log", i)) })
	}
	opened.Wait()
	first := slices.Index(errs, nil)
	if first < 0 {
		t.Fatalf("no server has the database: %v", errs)
	}
	for i, err := range errs {
		again := db.Bind(t.Context(), fmt.Sprint("log", i))
		for _, err := range []error{err, again} {
			if i == first && err != nil || i != first && !errors.Is(err, rows.ErrOtherLog) {
				t.Errorf("server %d, where server %d has the database: %v", i, first, err)
			}
		}
	}
	if b := must(db.Log(t.Context()))(t); b.Log != fmt.Sprint("log", first) {
		t.Errorf("the database is of %s, and server %d has it", b.Log, first)
	}
}

// contents returns all rows of all tables.
func contents(t *testing.T, c *pgx.Conn) string {
	t.Helper()
	var all strings.Builder
	for _, table := range tables(t, c) {
		var rows *string
		sql := "select jsonb_agg(t order by t::text)::text from " + pgx.Identifier{table}.Sanitize() + " t"
		check(t, c.QueryRow(t.Context(), sql).Scan(&rows))
		if rows != nil {
			all.WriteString(table + " " + *rows + "\n")
		}
	}
	return all.String()
}

// What works on rows for a host of another log fails, and changes none.
func TestOtherLog(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	w := newLogged(t, db)
	w.row(t, "running")
	w.row(t, "idle")
	w.add(t, "running", signal("r1", "running", "running"))
	l := w.lead(t)
	w.is(t, "before", "running", rows.ThreadRunning, "")
	l.Close()
	box := must(resolve(t.Context(), db, "idle", w.h.env))(t).Row.ID
	check(t, db.Bind(t.Context(), "own"))
	empty := newLogged(t, db) // a log without entries
	c := connect(t, url)
	before := contents(t, c)
	for name, f := range map[string]func(ctx context.Context, other *control.DB) error{
		"projector": func(ctx context.Context, other *control.DB) error {
			p := *empty.p
			p.DB = other
			l, err := p.Lead(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			return l.Compare(ctx)
		},
		"claim": func(ctx context.Context, other *control.DB) error {
			return claim(ctx, other, "idle", "r2", "")
		},
		"stale claims": func(ctx context.Context, other *control.DB) error {
			_, err := boxesOf(other).Stale(ctx)
			return err
		},
		"settle": func(ctx context.Context, other *control.DB) error {
			return boxesOf(other).Ended(ctx, "running", "r1", rows.ThreadFailed)
		},
		"condemn": func(ctx context.Context, other *control.DB) error {
			_, err := boxesOf(other).Condemn(ctx, box, nil, nil)
			return err
		},
		"lease": func(ctx context.Context, other *control.DB) error {
			_, err := boxesOf(other).Lease(box).Read(ctx)
			return err
		},
		"provisioner": func(ctx context.Context, other *control.DB) error {
			_, err := control.Queue{DB: other, Host: "h"}.Take(ctx, time.Hour, 1)
			return err
		},
		"member": func(ctx context.Context, other *control.DB) error {
			return other.As(w.h.owner).RenameHouse(ctx, w.h.id, "another")
		},
		"houses of a member": func(ctx context.Context, other *control.DB) error {
			_, err := control.StoreOf(other).Houses(ctx, w.h.owner)
			return err
		},
	} {
		if err := f(t.Context(), db.Of("other")); !errors.Is(err, rows.ErrOtherLog) {
			t.Errorf("%s: %v", name, err)
		}
		if after := contents(t, c); after != before {
			t.Errorf("%s: the rows were\n%s, and are\n%s", name, before, after)
			before = after
		}
	}
	check(t, db.Of("own").Host().RenameHouse(t.Context(), w.h.id, "mine"))
}

func boxesOf(db *control.DB) control.Boxes {
	return control.Boxes{Open: func(context.Context) (*control.DB, error) { return db, nil }}
}

// Rows that move to another log follow it, also where an offset of it is that of the former one; and they follow the
// former one again after a move back.
func TestMove(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	first := newLogged(t, db.Of("first"))
	second := newLogged(t, db.Of("second"))
	for i, end := range []string{"failed", "completed"} {
		w := []*logged{first, second}[i]
		w.add(t, "both", signal("r1", "running", "running"), signal("r1", "end.0", end))
		w.add(t, fmt.Sprint("only", i), signal("r1", "running", "running"))
	}
	check(t, db.Bind(t.Context(), "first"))
	first.row(t, "both")
	first.row(t, "only0")
	statuses := func(w *logged, when, both, only string) {
		t.Helper()
		l := w.lead(t)
		defer l.Close()
		w.is(t, when, "both", both, "")
		w.is(t, when, "only0", only, "")
	}
	statuses(first, "before", rows.ThreadFailed, rows.ThreadRunning)

	// A transaction of the first log ends before the move.
	c := connect(t, url)
	tx := must(c.Begin(t.Context()))(t)
	must(tx.Exec(t.Context(), `select require_log('first')`))(t)
	moved := make(chan error, 1)
	go func() { moved <- db.Move(t.Context(), "second") }()
	for waits, look := false, connect(t, url); !waits; {
		check(t, look.QueryRow(t.Context(), `select exists (select from pg_locks
			where locktype = 'advisory' and not granted)`).Scan(&waits))
	}
	must(tx.Exec(t.Context(), `update threads set name = 'from the first log' where id = 'both'`))(t)
	check(t, tx.Commit(t.Context()))
	check(t, <-moved)
	_, err := db.Of("first").Host().Thread(t.Context(), "both")
	is(t, err, rows.ErrOtherLog)
	statuses(second, "moved", rows.ThreadCompleted, rows.ThreadIdle)
	check(t, db.Move(t.Context(), "first"))
	statuses(first, "moved back", rows.ThreadFailed, rows.ThreadRunning)
}
