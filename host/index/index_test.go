package index_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/thread"
)

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

// world is a log with an index.
type world struct {
	t    testing.TB
	log  *log.Log
	dir  string // of the index
	x    *index.Index
	stop func()
}

func newLog(t testing.TB) *log.Log {
	t.Helper()
	l := log.New(must(pebble.Open(t.TempDir(), slog.New(slog.DiscardHandler)))(t))
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, log: newLog(t), dir: t.TempDir()}
	t.Cleanup(func() { w.close() })
	w.open()
	return w
}

// open opens the index and waits until it is ready.
func (w *world) open() {
	w.t.Helper()
	w.x = openIndex(w.t, w.dir, "i1", w.log)
	w.log.Changed = w.x.Changed
	w.stop = run(w.t, w.x)
}

func openIndex(t testing.TB, dir, installation string, l *log.Log) *index.Index {
	t.Helper()
	return must(index.Open(dir, installation, l, slog.New(slog.NewTextHandler(testWriter{t}, nil))))(t)
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// run runs an index until stop, and returns once it is ready.
func run(t testing.TB, x *index.Index) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	for {
		if _, err := x.List(t.Context(), index.Query{Limit: 1}); !errors.Is(err, index.ErrBuilding) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (w *world) close() {
	if w.x != nil {
		w.stop()
		w.x = nil
		w.log.Changed = nil
	}
}

func (w *world) append(id string, entries ...thread.Entry) {
	w.t.Helper()
	must(w.log.Append(w.t.Context(), id, entries))(w.t)
}

// list returns all summaries, page by page, once all changes are folded: on a busy machine List waits less long.
func list(t testing.TB, x *index.Index, q index.Query) (all []thread.Summary) {
	t.Helper()
	for !x.Idle() {
		if err := x.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched() // Run folds the last ones
	}
	for q.Limit = max(q.Limit, 1); ; {
		page := must(x.List(t.Context(), q))(t)
		all = append(all, page.Threads...)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return all
		}
	}
}

// check compares the index with a new one of the same log.
func (w *world) check() {
	w.t.Helper()
	x := openIndex(w.t, w.t.TempDir(), "i1", w.log)
	stop := run(w.t, x)
	defer stop()
	q := index.Query{Limit: 3}
	want, got := list(w.t, x, q), list(w.t, w.x, q)
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatal(d)
	}
	for _, v := range got {
		if d := cmp.Diff(v, must(w.x.Summary(w.t.Context(), v.ID))(w.t)); d != "" {
			w.t.Fatal(d)
		}
	}
}

// The index is the fold of the whole thread, for all recorded runs at every prefix.
func TestIndexAtEveryPrefix(t *testing.T) {
	w := newWorld(t)
	for name, content := range recorded.Sessions(t, "../../testdata") {
		id := strings.NewReplacer("/", "-", ".", "-").Replace(name)
		var whole index.State
		for i, e := range runsOf(t, name, content) {
			w.append(id, e)
			v := must(w.log.Stat(t.Context(), thread.StreamName(id)))(t)
			for _, r := range must(w.log.Read(t.Context(), v, v.Tail()-1, v.Tail(), 1))(t) {
				whole.Add(r)
			}
			want := whole.Summary(id)
			got := must(w.x.Summary(t.Context(), id))(t)
			if want.Offset = fmt.Sprintf("%020d", v.Tail()); cmp.Diff(want, got) != "" {
				t.Fatalf("%s, entry %d: %s", name, i, cmp.Diff(want, got))
			}
		}
	}
	w.check()
	w.close()
	w.open()
	w.check()
}

// fill makes n threads with some entries.
func (w *world) fill(n int) {
	for i := range n {
		id := fmt.Sprintf("t%02d", i)
		w.append(id, prompt("r1", "do "+id), status("r1", "running", "running"))
		w.append(id, signalled("r1", "beat.0", thread.TypeHeartbeat, `,"nextMs":5000`))
	}
}

// more appends to all threads of fill that were not deleted.
func (w *world) more(n int, entries ...thread.Entry) {
	for i := range n {
		id := fmt.Sprintf("t%02d", i)
		if _, err := w.log.Append(w.t.Context(), id, entries); err != nil && !errors.Is(err, log.ErrGone) {
			w.t.Fatal(err)
		}
	}
}

// Whatever has happened to its files while no server ran, the index is right afterwards.
func TestFaults(t *testing.T) {
	const n = 7
	file := func(w *world) string { return filepath.Join(w.dir, "threads.0") }
	read := func(w *world) []byte { return must(os.ReadFile(file(w)))(w.t) }
	write := func(w *world, b []byte) {
		if err := os.WriteFile(file(w), b, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	end := status("r1", "end.0", "completed")
	for name, fault := range map[string]func(w *world){
		"nothing": func(*world) {},
		"lost": func(w *world) {
			if err := os.RemoveAll(w.dir); err != nil {
				w.t.Fatal(err)
			}
		},
		"empty":           func(w *world) { write(w, nil) },
		"another version": func(w *world) { write(w, append([]byte("arbe index 0"), read(w)[12:]...)) },
		"another log's":   func(w *world) { b := read(w); b[len("arbe index 1 ")]++; write(w, b) },
		"old": func(w *world) {
			was := read(w)
			w.open()
			w.more(n, end)
			w.check()
			w.close()
			write(w, was)
		},
		"behind":           func(w *world) { w.more(n, end) },
		"a thread deleted": func(w *world) { w.delete("t03") },
		"killed in a compaction": func(w *world) {
			if err := os.WriteFile(file(w)+".new", []byte("half"), 0o600); err != nil {
				w.t.Fatal(err)
			}
		},
		"appended to": func(w *world) { write(w, append(read(w), "\x00\x00\x00\x00\xff\xff\xff\xff"...)) },
		"zeros":       func(w *world) { b := read(w); clear(b[100:]); write(w, b) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fill(n)
			w.check()
			w.close()
			fault(w)
			w.open()
			w.check()
			w.more(n, signalled("r1", "end.1", thread.TypeStatus, `,"status":"completed","lines":1`))
			w.check()
		})
	}
	t.Run("cut and changed anywhere", func(t *testing.T) {
		w := newWorld(t)
		w.fill(n)
		w.check()
		w.close()
		whole := read(w)
		step := max(1, len(whole)/60)
		for i := 0; i < len(whole); i += step {
			changed := bytes.Clone(whole)
			changed[i] ^= 0x10
			for _, b := range [][]byte{whole[:i], changed} {
				write(w, b)
				w.open()
				w.check()
				w.close()
			}
		}
	})
}

func (w *world) delete(id string) {
	w.t.Helper()
	if err := w.log.Delete(w.t.Context(), thread.StreamName(id)); err != nil {
		w.t.Fatal(err)
	}
}

// A log that was restored from an older backup, and has grown to the same length since, is another log.
func TestRestored(t *testing.T) {
	w := newWorld(t)
	w.fill(3)
	w.check()
	w.close()
	w.log = newLog(t)
	for i, words := range []string{"other", "running", "running"} {
		id := fmt.Sprintf("t%02d", i)
		w.append(id, prompt("r1", words), status("r1", "running", words[:min(len(words), 7)]))
		w.append(id, signalled("r1", "beat.0", thread.TypeHeartbeat, `,"nextMs":5000`)) // the same, at another time
	}
	w.open()
	w.check()
	if v := must(w.x.Summary(t.Context(), "t00"))(t); v.Title != "other" {
		t.Errorf("got %+v", v)
	}
}

// A value that is damaged while the index is in use is folded anew.
func TestDamagedInUse(t *testing.T) {
	w := newWorld(t)
	w.fill(5)
	w.check()
	f := must(os.OpenFile(filepath.Join(w.dir, "threads.0"), os.O_RDWR, 0))(t)
	info := must(f.Stat())(t)
	must(f.WriteAt(make([]byte, info.Size()-40), 40))(t)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w.check()
	must(f, os.Truncate(filepath.Join(w.dir, "threads.0"), 50))(t)
	w.more(5, status("r1", "end.0", "completed"))
	w.check()
}

// Two servers in one folder have an index each.
func TestTwoInOneFolder(t *testing.T) {
	w := newWorld(t)
	w.fill(3)
	other := openIndex(t, w.dir, "i1", w.log)
	stop := run(t, other)
	if got := list(t, other, index.Query{}); len(got) != 3 {
		t.Errorf("got %+v", got)
	}
	stop()
	w.check()
}

// The files of boxes' leases are no threads of anyone's.
func TestHidden(t *testing.T) {
	w := newWorld(t)
	w.append("_box_local_1", prompt("r1", "x"))
	if got := list(t, w.x, index.Query{}); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	if _, err := w.x.Summary(t.Context(), "_box_local_1"); !errors.Is(err, index.ErrAbsent) {
		t.Error(err)
	}
	if _, err := w.x.Summary(t.Context(), "t1"); !errors.Is(err, index.ErrAbsent) {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t)
	w.fill(9)
	w.more(4, status("r1", "end.0", "completed"))
	w.more(2, prompt("r2", "x"), signalled("r2", "running", thread.TypeStatus, `,"status":"running","harness2":1`))
	w.append("idle", prompt("c", "y"))
	ids := func(q index.Query) string {
		var all []string
		for _, v := range list(t, w.x, q) {
			all = append(all, v.ID)
		}
		return strings.Join(all, " ")
	}
	all := ids(index.Query{Limit: 100})
	for limit := 1; limit < 12; limit++ {
		if got := ids(index.Query{Limit: limit}); got != all {
			t.Errorf("limit %d: got %s, want %s", limit, got, all)
		}
	}
	if n := len(strings.Fields(all)); n != 10 {
		t.Errorf("got %s", all)
	}
	sorted := list(t, w.x, index.Query{Limit: 100})
	for i := range sorted[1:] {
		if sorted[i].StartedAt < sorted[i+1].StartedAt {
			t.Errorf("%s before %s", sorted[i].StartedAt, sorted[i+1].StartedAt)
		}
	}
	fields := strings.Fields(all)
	for _, some := range [][]string{nil, fields[:1], fields[9:], fields[3:7], {fields[0], fields[5], fields[9]}, fields} {
		only := func(_ context.Context, ids []string) (map[string]bool, error) {
			may := map[string]bool{}
			for _, id := range ids {
				may[id] = slices.Contains(some, id)
			}
			return may, nil
		}
		for limit := 1; limit < 12; limit++ {
			if got := ids(index.Query{Limit: limit, Only: only}); got != strings.Join(some, " ") {
				t.Errorf("only %s, limit %d: got %s", some, limit, got)
			}
		}
	}
	away := errors.New("away")
	if _, err := w.x.List(t.Context(), index.Query{
		Limit: 1, Only: func(context.Context, []string) (map[string]bool, error) { return nil, away },
	}); !errors.Is(err, away) {
		t.Errorf("Only's error: %v", err)
	}
	for _, tt := range []struct {
		q    index.Query
		want int
	}{
		{index.Query{Statuses: []string{"completed"}}, 2},
		{index.Query{Statuses: []string{"running"}}, 7},
		{index.Query{Statuses: []string{"running", "idle"}}, 8},
		{index.Query{Statuses: []string{"failed"}}, 0},
		{index.Query{Harnesses: []string{"pi"}}, 9},
		{index.Query{Harnesses: []string{"codex"}}, 0},
		{index.Query{Since: time.Now().Add(time.Hour)}, 0},
		{index.Query{Since: time.Now().Add(-time.Hour)}, 10},
	} {
		if got := len(strings.Fields(ids(tt.q))); got != tt.want {
			t.Errorf("%+v: got %d, want %d", tt.q, got, tt.want)
		}
	}
	for _, bad := range []string{"x", "1", ".t1", "1.", "x.t1", "1.a/b"} {
		if _, err := w.x.List(t.Context(), index.Query{Limit: 1, Cursor: bad}); !errors.Is(err, index.ErrCursor) {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}
}

// A reader gets each thread that has changed, as it is when it is taken, and one that was deleted.
func TestWatch(t *testing.T) {
	w := newWorld(t)
	w.fill(2)
	w.check()
	r := w.x.Watch()
	defer r.Close()
	take := func() (all []string) {
		for {
			changes, more, err := r.Take(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range changes {
				all = append(all, fmt.Sprint(c.ID, c.Summary.Status, c.Deleted))
			}
			if !more {
				return all
			}
		}
	}
	if got := take(); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	w.append("t01", status("r1", "end.0", "failed"))
	<-r.News()
	if got := strings.Join(take(), " "); got != "t01failedfalse" {
		t.Errorf("got %q", got)
	}
	w.delete("t00")
	<-r.News()
	if got := strings.Join(take(), " "); got != "t00true" {
		t.Errorf("got %q", got)
	}
}

// The file stays in proportion to its threads.
func TestCompact(t *testing.T) {
	w := newWorld(t)
	w.fill(3)
	long := strings.Repeat("x", 100_000)
	w.append("t00", signalled("r1", "end.0", thread.TypeFailed, `,"stderrTail":"`+long+`"`))
	for i := range 120 { // each stores the whole state
		w.append("t00", signalled("r1", fmt.Sprint("beat.", i+1), thread.TypeHeartbeat, ""))
		must(w.x.Summary(t.Context(), "t00"))(t)
	}
	w.append("t01", status("r1", "end.0", "failed"))
	for size := int64(1 << 62); size > 9<<20; time.Sleep(time.Millisecond) {
		size = must(os.Stat(filepath.Join(w.dir, "threads.0")))(t).Size()
	}
	w.check()
	w.close()
	w.open()
	w.check()
}

// While its file takes no writes, the index answers with an error rather than with what was; afterwards it is right.
func TestUnwritable(t *testing.T) {
	w := newWorld(t)
	w.fill(3)
	w.check()
	undo := must(w.x.ReadOnly())(t)
	w.append("t01", status("r1", "end.0", "completed"))
	if v, err := w.x.Summary(t.Context(), "t01"); err == nil {
		t.Errorf("got %+v", v)
	}
	for {
		if _, err := w.x.List(t.Context(), index.Query{Limit: 9}); err != nil {
			break
		}
	}
	if v := must(w.x.Summary(t.Context(), "t00"))(t); v.Status != "running" {
		t.Errorf("got %+v", v)
	}
	undo()
	w.check()
}

// A reader of some threads receives their changes alone, from the time at which it wants them, and those of the newest
// ones where it wants too many.
func TestWatchSome(t *testing.T) {
	w := newWorld(t)
	w.fill(3)
	w.check()
	r := w.x.WatchSome()
	defer r.Close()
	changed := func(want ...string) {
		t.Helper()
		for i, id := range []string{"t00", "t01", "t02"} {
			w.append(id, status("r1", fmt.Sprint("s.", len(want), ".", i), "running"))
		}
		list(t, w.x, index.Query{}) // all is folded
		changes, more, err := r.Take(t.Context(), 10)
		var got []string
		for _, c := range changes {
			got = append(got, c.ID)
		}
		if slices.Sort(got); err != nil || more || !slices.Equal(got, want) {
			t.Errorf("changes of %v, more %v, %v; want %v", got, more, err, want)
		}
	}
	changed()
	r.Want("t01")
	r.Want("t01")
	r.Want("t02")
	changed("t01", "t02")
	for i := range index.MostWanted - 1 {
		r.Want(fmt.Sprint(i))
	}
	changed("t02")
}
