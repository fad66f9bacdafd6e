package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

// A thread is deleted or claimed, never both, and each thread whose row goes was given to the deletion of logs.
func TestDeleteAgainstClaim(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s := db.As(h.member)
	deleted := 0
	for n := range 60 {
		top := must(s.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.bot}))(t).ID
		below := must(s.CreateThread(ctx, rows.NewThread{House: h.id, Agent: h.bot, Parent: top}))(t).ID
		var logs []string
		var child rows.Thread
		var del, claimed, create error
		var g sync.WaitGroup
		g.Go(func() {
			del = s.DeleteThread(ctx, top, func(_ context.Context, ids []string) error {
				logs = ids
				return nil
			})
		})
		g.Go(func() { claimed = claim(ctx, db, below, fmt.Sprint("r", n), h.env) })
		g.Go(func() { child, create = s.CreateThread(ctx, rows.NewThread{House: h.id, Parent: top}) })
		g.Wait()
		if del == nil {
			deleted++
			is(t, claimed, rows.ErrAbsent)
			want := []string{top, below}
			if create == nil {
				want = append(want, child.ID)
			} else {
				is(t, create, rows.ErrReference)
			}
			slices.Sort(want)
			if slices.Sort(logs); !slices.Equal(logs, want) {
				t.Errorf("logs of %v are deleted, of rows %v", logs, want)
			}
			continue
		}
		is(t, del, rows.ErrRunning)
		if claimed != nil || logs != nil {
			t.Errorf("refused, but the claim has %v, and logs of %v are deleted", claimed, logs)
		}
	}
	t.Logf("%d of 60 were deleted first", deleted)
}

// While logs fail the rows stay, and a repeat deletes them.
func TestDeleteLogs(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s := db.As(h.member)
	id := must(s.CreateThread(ctx, rows.NewThread{House: h.id}))(t).ID
	failed := errors.New("the log is away")
	is(t, s.DeleteThread(ctx, id, func(context.Context, []string) error { return failed }), failed)
	must(s.Thread(ctx, id))(t)
	check(t, s.DeleteThread(ctx, id, nil))
	is(t, s.DeleteThread(ctx, id, nil), rows.ErrAbsent)
	other := must(s.CreateThread(ctx, rows.NewThread{House: h.id}))(t).ID
	err := db.As(newHouse(t, db).owner).DeleteThread(ctx, other, func(context.Context, []string) error {
		t.Error("the logs of another house's thread are deleted")
		return nil
	})
	is(t, err, rows.ErrAbsent)
}

// A page begins behind a thread that was deleted since, and a list can be of some threads.
func TestThreadsAfter(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s := db.As(h.member)
	var all []rows.Thread
	for range 4 {
		all = append(all, must(s.CreateThread(ctx, rows.NewThread{House: h.id}))(t))
	}
	check(t, s.DeleteThread(ctx, all[2].ID, nil))
	got := must(s.Threads(ctx, rows.Query{House: h.id, After: all[2].Mark()}))(t)
	if len(got) != 2 || got[0].ID != all[1].ID || got[1].ID != all[0].ID {
		t.Errorf("behind a deleted thread: %+v", got)
	}
	foreign := must(db.Host().CreateThread(ctx, rows.NewThread{House: newHouse(t, db).id}))(t).ID
	got = must(s.Threads(ctx, rows.Query{IDs: []string{all[0].ID, foreign, "absent"}}))(t)
	if len(got) != 1 || got[0].ID != all[0].ID {
		t.Errorf("by id: %+v", got)
	}
}

// Changes of an environment at the same time are all there, and an archived one can be taken into use again.
func TestChangeEnvironment(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, h := t.Context(), newHouse(t, db)
	s := db.As(h.member)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			_, err := s.ChangeEnvironment(ctx, h.env, rows.EnvironmentChange{Recipe: func(r *rows.Recipe) error {
				var config map[string]int
				err := json.Unmarshal(r.Config, &config)
				r.Config = []byte(fmt.Sprintf(`{"n":%d}`, config["n"]+1))
				return err
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	if e := must(s.Environment(ctx, h.env))(t); string(e.Config) != `{"n": 8}` || e.Name != "base" {
		t.Errorf("got %s", e.Config)
	}
	refused := errors.New("no")
	yes, no := true, false
	_, err := s.ChangeEnvironment(ctx, h.env, rows.EnvironmentChange{
		Recipe: func(*rows.Recipe) error { return refused }, Archived: &yes,
	})
	is(t, err, refused)
	_, err = db.As(newHouse(t, db).owner).ChangeEnvironment(ctx, h.env, rows.EnvironmentChange{})
	is(t, err, rows.ErrAbsent)
	if e := must(s.ChangeEnvironment(ctx, h.env, rows.EnvironmentChange{}))(t); e.ArchivedAt != nil || string(e.Config) != `{"n": 8}` {
		t.Errorf("a change that was refused left %+v", e)
	}

	thread := must(s.CreateThread(ctx, rows.NewThread{House: h.id}))(t).ID
	check(t, s.ArchiveEnvironment(ctx, h.env))
	_, err = s.ChangeThread(ctx, thread, rows.ThreadChange{Environment: &h.env})
	is(t, err, rows.ErrArchived)
	rename := func(r *rows.Recipe) error {
		r.Name = "renamed"
		return nil
	}
	e := must(s.ChangeEnvironment(ctx, h.env, rows.EnvironmentChange{Recipe: rename, Archived: &no}))(t)
	if e.ArchivedAt != nil || e.Name != "renamed" {
		t.Errorf("got %+v", e)
	}
	got := must(s.ChangeThread(ctx, thread, rows.ThreadChange{Environment: &h.env}))(t)
	if got.Environment != h.env {
		t.Errorf("the thread's environment is %q", got.Environment)
	}
	none := ""
	got = must(s.ChangeThread(ctx, thread, rows.ThreadChange{Environment: &none}))(t)
	if got.Environment != "" {
		t.Errorf("the thread's environment is %q", got.Environment)
	}
}
