package control_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// logged is a log with its index, and a projector of it.
type logged struct {
	log *log.Log
	x   *index.Index
	p   *control.Projector
	db  *control.DB
	h   house
}

func newLogged(t *testing.T, db *control.DB) *logged {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	l := log.New(must(pebble.Open(t.TempDir(), quiet))(t))
	x := must(index.Open(t.TempDir(), "i1", l, quiet))(t)
	l.Changed = x.Changed
	t.Cleanup(func() { check(t, errors.Join(x.Close(), l.Close())) })
	knows := func(ctx context.Context, thread, run string) (bool, error) {
		_, is, err := l.ReceivedAt(ctx, thread, run+".running")
		return is, err
	}
	return &logged{l, x, &control.Projector{DB: db, Index: x, Knows: knows, Logger: quiet}, db, newHouse(t, db)}
}

// row makes a thread that the house's bot drives.
func (w *logged) row(t *testing.T, id string) {
	t.Helper()
	n := rows.NewThread{ID: id, House: w.h.id, Agent: w.h.bot}
	must(w.db.Host().CreateThread(t.Context(), n))(t)
}

// add appends entries to a thread, and folds them.
func (w *logged) add(t *testing.T, id string, entries ...thread.Entry) {
	t.Helper()
	must(w.log.Append(t.Context(), id, entries))(t)
	check(t, w.x.Sync(t.Context()))
}

// signal returns a run's status.
func signal(run, suffix, status string) thread.Entry {
	return thread.Entry{
		ID: run + "." + suffix, TS: "2026-01-01T00:00:00.000Z",
		Payload: fmt.Appendf(nil, `{"type":"signal.thread.status_changed","runId":%q,"harness":"pi","status":%q}`,
			run, status),
	}
}

// lead makes the projector the one that writes, once the server has noticed that a killed one has ended.
func (w *logged) lead(t *testing.T) control.Leader {
	t.Helper()
	l, err := w.p.Lead(t.Context())
	for ; errors.Is(err, control.ErrNotLeading); l, err = w.p.Lead(t.Context()) {
		time.Sleep(time.Millisecond) // between two looks
	}
	check(t, err)
	t.Cleanup(l.Close)
	check(t, l.Compare(t.Context()))
	return l
}

// is checks a thread's row.
func (w *logged) is(t *testing.T, when, id, status, claimed string) rows.Thread {
	t.Helper()
	got := must(w.db.Host().Thread(t.Context(), id))(t)
	if got.Status != status || got.ClaimedRun != claimed {
		t.Errorf("%s: the row is %s, claimed by %q; want %s, %q", when, got.Status, got.ClaimedRun, status, claimed)
	}
	return got
}

// recordedThreads returns the recorded threads.
func recordedThreads(t *testing.T) map[string][]thread.Entry {
	t.Helper()
	paths, err := filepath.Glob("../../testdata/threads/*.ndjson")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded threads: %v", err)
	}
	all := map[string][]thread.Entry{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".ndjson")
		for line := range bytes.Lines(must(os.ReadFile(path))(t)) {
			var e thread.Entry
			check(t, json.Unmarshal(line, &e))
			e.At = ""
			all[name] = append(all[name], e)
		}
	}
	// A thread of two runs, of which the host gives up the first: its own verdict comes late. And a text that jsonb
	// refuses.
	all["two"] = []thread.Entry{
		{ID: "r1.prompt", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"nul \u0000 here"}`)},
		signal("r1", "running", "running"), signal("r1", "orphan.0", "failed"), signal("r2", "running", "running"),
		signal("r1", "end.0", "completed"), signal("r2", "end.0", "cancelled"),
	}
	return all
}

// Rows have the status of the fold for all recorded threads at every prefix: followed, made again from nothing, and by
// a new leader.
func TestProjectorAtEveryPrefix(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	w := newLogged(t, db)
	l := w.lead(t)
	w.everyPrefix(t, url, func(i int) {
		switch i % 4 {
		case 1:
			_ = must(connect(t, url).Exec(t.Context(), "truncate thread_cache"))(t)
			check(t, l.Sweep(t.Context()))
		case 2:
			l.Close()
			l = w.lead(t)
		}
		check(t, errors.Join(l.Sync(t.Context()), l.Sync(t.Context())))
	})
}

// The same, where Postgres is killed under the projector at every prefix.
func TestFullProjectorKills(t *testing.T) {
	s, url := killable.Server(t), killable.New(t)
	db, _ := openAt(t, url, control.Config{})
	w := newLogged(t, db)
	l := w.lead(t)
	w.everyPrefix(t, url, func(int) {
		ended := make(chan error, 1)
		go func() { ended <- l.Sync(t.Context()) }()
		check(t, s.Kill())
		if err := <-ended; err != nil && !errors.Is(err, rows.ErrAway) {
			t.Errorf("got %v", err)
		}
		l.Close()
		check(t, s.Restart())
		l = w.lead(t)
	})
}

// everyPrefix appends the recorded threads, entry by entry, and calls project after each. Then rows and cache have the
// status of the fold.
func (w *logged) everyPrefix(t *testing.T, url string, project func(i int)) {
	t.Helper()
	threads := recordedThreads(t)
	folds := map[string]*thread.Fold{}
	for name := range threads {
		w.row(t, name)
		folds[name] = &thread.Fold{}
	}
	for i, more := 0, true; more; i++ {
		more = false
		for name, entries := range threads {
			if i < len(entries) {
				more = true
				must(w.log.Append(t.Context(), name, entries[i:i+1]))(t)
				folds[name].Add(entries[i])
			}
		}
		check(t, w.x.Sync(t.Context()))
		project(i)
		c := must(pgx.Connect(t.Context(), url))(t)
		for name, fold := range folds {
			w.equals(t, c, fmt.Sprint(name, " after entry ", i), name, fold.Status())
		}
		check(t, c.Close(t.Context()))
	}
}

// equals checks a thread's row and cache against the status of its fold.
func (w *logged) equals(t *testing.T, c *pgx.Conn, when, id, want string) {
	t.Helper()
	var row, cached, upto string
	check(t, c.QueryRow(t.Context(), `select t.status, c.status, c.upto from threads t
		join thread_cache c on c.thread_id = t.id where t.id = $1`, id).Scan(&row, &cached, &upto))
	offset := must(w.x.Summary(t.Context(), id))(t).Offset
	if row != want || cached != want || upto != offset {
		t.Fatalf("%s: row %s, cache %s up to %s; want %s, %s", when, row, cached, upto, want, offset)
	}
}

// A claim stays until the log knows its run, whatever other runs post; then the row follows the log.
func TestProjectorKeepsClaims(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	w := newLogged(t, db)
	ctx := t.Context()
	w.row(t, "t")
	w.add(t, "t", signal("r1", "running", "running"))
	l := w.lead(t)
	w.is(t, "run 1", "t", rows.ThreadRunning, "")
	w.add(t, "t", signal("r1", "orphan.0", "failed"))
	check(t, l.Sync(ctx))
	w.is(t, "given up", "t", rows.ThreadFailed, "")
	check(t, claim(ctx, db, "t", "r2", w.h.env))
	for _, late := range []string{"end.0", "end.1"} {
		w.add(t, "t", signal("r1", late, "completed"))
		check(t, errors.Join(l.Sync(ctx), l.Compare(ctx)))
		w.is(t, "a late "+late+" of run 1", "t", rows.ThreadRunning, "r2")
	}
	before := w.is(t, "run 2", "t", rows.ThreadRunning, "r2")
	w.add(t, "t", signal("r2", "running", "running"))
	check(t, l.Sync(ctx))
	known := w.is(t, "known", "t", rows.ThreadRunning, "")
	if known.UpdatedAt.Equal(before.UpdatedAt) {
		t.Error("the row has changed and its time has not")
	}
	w.add(t, "t", thread.Entry{
		ID: "r2.beat.0", TS: "2026-01-01T00:00:00.000Z",
		Payload: []byte(`{"type":"signal.dispatch.heartbeat","runId":"r2","harness":"pi","beat":0,"nextMs":5000}`),
	})
	check(t, l.Sync(ctx))
	if beat := w.is(t, "heartbeat", "t", rows.ThreadRunning, ""); !beat.UpdatedAt.Equal(known.UpdatedAt) {
		t.Error("a heartbeat changes the row")
	}
	w.add(t, "t", signal("r1", "end.2", "failed"), signal("r2", "end.0", "completed"))
	check(t, l.Sync(ctx))
	w.is(t, "the end of run 2", "t", rows.ThreadCompleted, "")

	// A claimed run that the log knows, under a later one that nobody has claimed.
	check(t, claim(ctx, db, "t", "r3", w.h.env))
	w.add(t, "t", signal("r3", "running", "running"), signal("r3", "end.0", "completed"),
		signal("r4", "running", "running"), signal("r4", "end.0", "cancelled"))
	check(t, l.Sync(ctx))
	w.is(t, "run 4", "t", rows.ThreadCancelled, "")

	// A claim whose run never shows.
	check(t, claim(ctx, db, "t", "r5", w.h.env))
	seen, _, err := boxes(db).Running(ctx, "t")
	check(t, errors.Join(err, boxes(db).Follow(ctx, "t", seen, rows.ThreadCancelled)))
	w.is(t, "abandoned", "t", rows.ThreadCancelled, "")
}

// Rows without a log, logs without a row, rows that come after their log, and logs that are deleted.
func TestProjectorFollowsDeletions(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	w := newLogged(t, db)
	ctx := t.Context()
	w.row(t, "unwritten")
	w.add(t, "rowless", signal("r1", "running", "running"))
	l := w.lead(t)
	w.is(t, "no log", "unwritten", rows.ThreadIdle, "")
	w.row(t, "rowless")
	check(t, l.Sweep(ctx))
	w.is(t, "a late row", "rowless", rows.ThreadRunning, "")
	w.add(t, "rowless", signal("r1", "end.0", "completed"), signal("r2", "running", "running"))
	check(t, l.Sync(ctx))
	check(t, w.log.Delete(ctx, thread.StreamName("rowless")))
	check(t, errors.Join(w.x.Sync(ctx), l.Sync(ctx)))
	w.is(t, "deleted", "rowless", rows.ThreadIdle, "")
	w.row(t, "unseen")
	w.add(t, "unseen", signal("r3", "running", "running"))
	check(t, l.Sync(ctx))
	w.is(t, "another log", "unseen", rows.ThreadRunning, "")
	l.Close()
	check(t, w.log.Delete(ctx, thread.StreamName("unseen"))) // while no projector looks
	w.lead(t)
	w.is(t, "deleted before", "unseen", rows.ThreadIdle, "")
}

// One projector writes; the next one does when the first one's connection ends.
func TestOneProjector(t *testing.T) {
	db, url := openAlone(t, control.Config{})
	w := newLogged(t, db)
	l := w.lead(t)
	_, err := w.p.Lead(t.Context())
	is(t, err, control.ErrNotLeading)
	_ = must(connect(t, url).Exec(t.Context(), `select pg_terminate_backend(pid) from pg_locks
		where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())`))(t)
	w.row(t, "t")
	w.add(t, "t", signal("r1", "running", "running"))
	is(t, l.Sync(t.Context()), rows.ErrAway)
	w.lead(t)
	w.is(t, "the next projector", "t", rows.ThreadRunning, "")
}

// A projector that runs follows the log over restarts of the database: rows catch up.
func TestProjectorRuns(t *testing.T) {
	s := killable.Server(t)
	db, _ := openAt(t, killable.New(t), control.Config{})
	w := newLogged(t, db)
	ids := []string{uuid.NewString(), uuid.NewString()}
	for _, id := range ids {
		w.row(t, id)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.p.Run(ctx) }()
	// until waits until all rows have a status. The test's own limit on time ends it.
	until := func(status string) {
		t.Helper()
		for done := 0; done < len(ids); {
			done = 0
			for _, id := range ids {
				if row, err := db.Host().Thread(t.Context(), id); err == nil && row.Status == status {
					done++
				}
			}
			time.Sleep(time.Millisecond) // between two looks
		}
	}
	for i, end := range []func() error{s.Kill, s.Halt} {
		run := fmt.Sprint("r", i)
		for _, id := range ids {
			w.add(t, id, signal(run, "running", "running"))
		}
		until(rows.ThreadRunning)
		check(t, end())
		for _, id := range ids { // meanwhile the log grows
			w.add(t, id, signal(run, "end.0", "completed"))
		}
		check(t, s.Restart())
		until(rows.ThreadCompleted)
	}
	cancel()
	check(t, <-ended)
}
