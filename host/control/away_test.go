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
)

// A database that is killed is away, and a DB that was opened before works once it is back.
func TestAway(t *testing.T) {
	s, url := killable.Server(t), killable.New(t)
	db, _ := openAt(t, url, control.Config{})
	h := newHouse(t, db)
	var all sync.WaitGroup
	for range 8 { // the pool has several connections
		all.Go(func() { must(db.As(h.owner).Houses(t.Context()))(t) })
	}
	all.Wait()
	check(t, s.Kill())
	check(t, s.Restart())
	must(db.As(h.owner).Houses(t.Context()))(t) // none of them is of use any more
	for name, end := range map[string]func() error{"killed": s.Kill, "halted": s.Halt} {
		check(t, end())
		for range 2 { // on a connection that was open, on a new one
			_, err := db.As(h.owner).Houses(t.Context())
			is(t, err, rows.ErrAway)
		}
		_, err := control.Open(t.Context(), url, control.Config{})
		is(t, err, rows.ErrAway)
		_, err = control.Migrate(t.Context(), url)
		is(t, err, rows.ErrAway)
		check(t, s.Restart())
		if all, err := db.As(h.owner).Houses(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}

// Waits are bounded: for a lock, for a statement, for a connection.
func TestBounds(t *testing.T) {
	t.Parallel()
	const short = 5 * time.Second // and longer than any of these statements takes
	db, url := open(t, control.Config{Connections: 1, Lock: 50 * time.Millisecond, Call: short})
	h := newHouse(t, db)
	id := driven(t, db, h)
	c := connect(t, url)
	tx := must(c.Begin(t.Context()))(t)
	_ = must(tx.Exec(t.Context(), "select from threads where id = $1 for update", id))(t)
	is(t, claim(t.Context(), db, id, "r1", ""), rows.ErrBusy)
	other, _ := open(t, control.Config{Statement: short / 2, Lock: time.Hour})
	is(t, claim(t.Context(), other, id, "r1", ""), rows.ErrTimeout)
	check(t, tx.Rollback(t.Context()))

	held := make(chan struct{})
	seal := func(string) (control.Sealed, error) {
		<-held
		return control.Sealed{}, errors.New("enough")
	}
	entered := make(chan error, 1)
	go func() {
		_, err := db.As(h.owner).PutSecret(t.Context(), h.id, "TOKEN", func(id string) (control.Sealed, error) {
			entered <- nil
			return seal(id)
		})
		entered <- err
	}()
	check(t, <-entered)
	_, err := db.Host().Houses(t.Context())
	is(t, err, rows.ErrTimeout)
	close(held)
	if err := <-entered; err == nil || !strings.Contains(err.Error(), "put secret TOKEN") {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	_, err = db.Host().Houses(ended)
	if err == nil || errors.Is(err, rows.ErrAway) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("got %v", err)
	}
}
