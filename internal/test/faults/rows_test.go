package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/internal/test/postgres"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Ids of the rows that newRows makes.
const (
	person   = "5d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a" // a member of house1
	stranger = "6d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a" // a member of house2
	bot      = "7d3c1a52-6b5e-4c6e-9c1a-0f1e2d3c4b5a" // of both
)

// rows is a Postgres of the test's own, with the rows of two houses.
type rows struct {
	server *postgres.Server
	url    string
}

func newRows(t *testing.T) *rows {
	t.Helper()
	s, url := postgres.Own(t)
	r := &rows{server: s, url: url}
	migrate := (&service{dir: t.TempDir(), env: r.env("migrate")}).arbe("db", "migrate")
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("arbe db migrate: %v\n%s", err, out)
	}
	r.exec(t, "insert into houses (id, name) values ('house1', 'One'), ('house2', 'Two')")
	r.exec(t, `insert into agents (id, kind, runtime) values ($1, 'human', null), ($2, 'human', null),
		($3, 'bot', 'pi')`, person, stranger, bot)
	r.exec(t, `insert into members (house_id, agent_id, role) values ('house1', $1, 'owner'),
		('house2', $2, 'owner'), ('house1', $3, 'member'), ('house2', $3, 'member')`, person, stranger, bot)
	return r
}

// env is the environment of a server with these rows, whose connections have its name.
func (r *rows) env(name string) []string {
	return []string{"ARBE_DATABASE=" + r.url, "PGAPPNAME=" + name}
}

// thread makes the row of a thread that the bot drives.
func (r *rows) thread(t *testing.T, house, id string) {
	t.Helper()
	r.exec(t, `insert into threads (id, stream_id, house_id, agent_id, status) values ($1, $1, $2, $3, 'idle')`,
		id, house, bot)
}

// exec executes a statement as the owner of the rows.
func (r *rows) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	r.with(t, func(c *pgx.Conn) error {
		_, err := c.Exec(t.Context(), sql, args...)
		return err
	})
}

// text returns the only value of a query.
func (r *rows) text(t *testing.T, sql string, args ...any) (v string) {
	t.Helper()
	r.with(t, func(c *pgx.Conn) error { return c.QueryRow(t.Context(), sql, args...).Scan(&v) })
	return v
}

func (r *rows) with(t *testing.T, do func(*pgx.Conn) error) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), r.url)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(c), c.Close(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
}

// state returns a row's status and how far its cache is.
func (r *rows) state(t *testing.T, id string) string {
	t.Helper()
	return r.text(t, `select concat_ws(' ', t.status, c.status, c.upto) from threads t
		left join thread_cache c on c.thread_id = t.id where t.id = $1`, id)
}

// folded returns what the row of a thread must have: the status of the fold of all entries, and the offset behind them.
func (v *service) folded(t *testing.T, id string) string {
	t.Helper()
	var f thread.Fold
	page, err := v.client(t, id).Read(t.Context(), "0", false, func(e thread.Entry) error {
		f.Add(e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s %s %s", f.Status(), f.Status(), page.Next)
}

// leads returns the name of the server whose projector holds the lock; "" for none.
func (r *rows) leads(t *testing.T) string {
	t.Helper()
	return r.text(t, `select coalesce(string_agg(application_name, ' '), '') from pg_locks l
		join pg_stat_activity using (pid) where locktype = 'advisory' and granted and l.database =
			(select oid from pg_database where datname = current_database())`)
}

// audit notes for each write of the projector's which server it was, and whether that had the lock.
const audit = `
	create table audit (app text, leads bool);
	create function audit() returns trigger language plpgsql as $$
	begin
		insert into audit select current_setting('application_name'),
			exists (select from pg_locks where locktype = 'advisory' and granted and pid = pg_backend_pid());
		return null;
	end;
	$$;
	create trigger audit after insert or update on thread_cache for each statement execute function audit();`

// until waits for something that must come.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); {
		waited := time.Since(began)
		if waited > patience {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(min(max(2*time.Millisecond, waited/8), 100*time.Millisecond)) // between two looks
	}
}

// Two servers stand before one log in NATS and one Postgres. Threads of a house grow through both; one server is killed
// and started again, then the other. In the end the rows equal the fold of each thread's log, one projector at a time
// has written, and a member's list is the same at both.
func TestFullTwoServers(t *testing.T) {
	t.Parallel()
	nats, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(nats) })
	r := newRows(t)
	r.exec(t, audit)
	servers := map[string]*service{}
	for _, name := range []string{"one", "two"} {
		v := newService(t)
		v.env = r.env(name)
		v.args = []string{
			"--engine", "nats", "--nats-url", nats.ClientURL(), "--nats-allow-unsafe", "--nats-replicas", "1",
		}
		v.start(t)
		servers[name] = v
	}
	w := &growing{servers: []*service{servers["one"], servers["two"]}, stop: make(chan struct{})}
	for i := range 6 {
		w.ids = append(w.ids, fmt.Sprint("ours", i))
		r.thread(t, "house1", w.ids[i])
	}
	r.thread(t, "house2", "theirs")
	w.ids = append(w.ids, "theirs")
	w.begin(t)
	for range 2 {
		var leader string
		until(t, "a projector that writes", func() bool { leader = r.leads(t); return leader != "" })
		w.grow(t)
		until(t, "rows that follow the log", func() bool {
			return r.text(t, "select count(distinct thread_id)::text from thread_cache") == fmt.Sprint(len(w.ids))
		})
		servers[leader].kill(t)
		r.exec(t, "truncate thread_cache") // the next projector makes it again
		until(t, "the other server's projector", func() bool {
			next := r.leads(t)
			return next != "" && next != leader
		})
		servers[leader].start(t)
		w.grow(t)
	}
	close(w.stop)
	w.all.Wait()
	if t.Failed() {
		return
	}
	for _, id := range w.ids {
		want := servers["one"].folded(t, id)
		if other := servers["two"].folded(t, id); other != want {
			t.Errorf("thread %s is %q at one server, and %q at the other", id, want, other)
		}
		until(t, "the row of "+id, func() bool { return r.state(t, id) == want })
	}
	if got := r.text(t, "select string_agg(distinct app || ' ' || leads, ', ') from audit"); got !=
		"one true, two true" {
		t.Errorf("rows were written by (server, whether it had the lock): %s", got)
	}
	one := w.list(t, servers["one"])
	if two := w.list(t, servers["two"]); one != two || strings.Contains(one, "theirs") ||
		strings.Count(one, `"id":"ours`) != len(w.ids)-1 {
		t.Errorf("the member's list at one server:\n%s\nat the other:\n%s", one, two)
	}
}

// growing are threads that grow through several servers, by one run after the other.
type growing struct {
	servers []*service
	ids     []string
	stop    chan struct{} // closed when each thread has its last run
	all     sync.WaitGroup

	mu   sync.Mutex
	runs map[string]int // by thread: those that have ended
}

// begin lets the threads grow until stop is closed, each entry through the next server. What a server does not take,
// since it is killed, goes to the other one.
func (w *growing) begin(t *testing.T) {
	w.runs = map[string]int{}
	t.Cleanup(w.all.Wait)
	for k, id := range w.ids {
		var clients []*client.Client
		for _, v := range w.servers {
			clients = append(clients, v.client(t, id))
		}
		w.all.Go(func() {
			for n := k; ; n++ {
				run := fmt.Sprint("r", n)
				for i, status := range []string{"running", []string{"completed", "failed", "cancelled"}[n%3]} {
					e := thread.Entry{
						ID: run + []string{".running", ".end.0"}[i], TS: thread.Stamp(time.Now()),
						Payload: fmt.Appendf(nil, `{"type":"signal.thread.status_changed","runId":%q,"harness":"pi",`+
							`"status":%q}`, run, status),
					}
					for try := n + i; !w.took(t, clients[try%len(clients)], e); try++ {
						if t.Context().Err() != nil {
							return
						}
					}
				}
				w.mu.Lock()
				w.runs[id]++
				w.mu.Unlock()
				select {
				case <-w.stop:
					return
				case <-t.Context().Done():
					return
				case <-time.After(50 * time.Millisecond): // what a run takes
				}
			}
		})
	}
}

// took appends an entry by a client, and reports whether its server has acknowledged it.
func (w *growing) took(t *testing.T, c *client.Client, e thread.Entry) bool {
	_, err := c.Append(t.Context(), []thread.Entry{e})
	if err != nil && c.Away() {
		return false
	}
	if err != nil && t.Context().Err() == nil {
		t.Errorf("%s of thread %s: %v", e.ID, c.Thread, err)
	}
	return true
}

// grow waits until each thread has had some more runs.
func (w *growing) grow(t *testing.T) {
	t.Helper()
	count := func() map[string]int {
		w.mu.Lock()
		defer w.mu.Unlock()
		now := map[string]int{}
		for id, n := range w.runs {
			now[id] = n
		}
		return now
	}
	before := count()
	until(t, "threads that grow", func() bool {
		now := count()
		return t.Failed() || !slices.ContainsFunc(w.ids, func(id string) bool { return now[id] < before[id]+4 })
	})
}

// list returns the list of the threads of person's houses at a server, once the server has all of each log.
func (w *growing) list(t *testing.T, v *service) (got string) {
	t.Helper()
	out, err := v.arbe("token", "mint", "--scope", "member", "--agent", person).Output()
	if err != nil {
		t.Fatal(err)
	}
	until(t, "a member's list", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+v.addr+"/api/threads", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(out)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		got = string(b)
		var page thread.SummaryPage
		if resp.StatusCode != http.StatusOK || json.Unmarshal(b, &page) != nil {
			return false
		}
		return !slices.ContainsFunc(page.Threads, func(s thread.Summary) bool {
			return v.folded(t, s.ID) != fmt.Sprintf("%s %s %s", s.Status, s.Status, s.Offset)
		})
	})
	return got
}

// A run continues and ends right while Postgres is killed, and the rows catch up once it is there again.
func TestFullRowsCatchUp(t *testing.T) {
	t.Parallel()
	r := newRows(t)
	r.thread(t, "house1", "t1")
	s := newScene(t, fmt.Sprint("rows-", os.Getpid()))
	s.script(midTool)
	s.real = newService(t)
	s.real.env = r.env("serve")
	s.real.start(t)
	s.front.lead(s.real.addr)
	s.start()
	s.reach(midTool)
	running := func() bool { return strings.HasPrefix(r.state(t, "t1"), "running running ") }
	s.until("a row that runs", running)
	// Killed and started again while the run continues.
	if err := errors.Join(r.server.Kill(), r.server.Restart()); err != nil {
		t.Fatal(err)
	}
	r.exec(t, "truncate thread_cache") // what the row has from now on was written after the restart
	s.until("a row that runs, made again", running)
	// Killed, and not there at the run's end.
	if err := r.server.Kill(); err != nil {
		t.Fatal(err)
	}
	s.release(midTool)
	if status := s.finish(); status != 0 {
		t.Errorf("the runner ended with %d:\n%s", status, s.stderr.String())
	}
	if word, _ := s.verdict(); word != thread.StatusCompleted {
		t.Errorf("the run is %s", word)
	}
	s.complete()
	if err := r.server.Restart(); err != nil {
		t.Fatal(err)
	}
	want := s.real.folded(t, "t1")
	s.until("the row", func() bool { return r.state(t, "t1") == want })
	if !strings.HasPrefix(want, "completed completed ") {
		t.Errorf("the row is %s", want)
	}
}
