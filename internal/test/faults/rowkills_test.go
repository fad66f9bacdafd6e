package faults_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/thread"
)

// stops lets a host wait within the transactions that a row of the table stops names, and so before their commit.
const stops = `
	create table stops (place text);
	create function stop() returns trigger language plpgsql as $$
	begin
		if exists (select from public.stops where place = tg_argv[0]) then
			perform pg_advisory_xact_lock(4242);
		end if;
		return coalesce(new, old);
	end;
	$$;
	create trigger stop_claim before update on threads for each row
		when (new.claimed_run is not null and old.claimed_run is null) execute function stop('claim');
	create trigger stop_make before insert on sandboxes for each row execute function stop('make');
	create trigger stop_made before update on sandboxes for each row
		when (new.status = 'pending' and old.provider_ref is null and new.provider_ref is not null)
		execute function stop('made');
	create trigger stop_live before update on sandboxes for each row
		when (new.status = 'live' and old.status = 'pending') execute function stop('live');
	create trigger stop_dead before update on sandboxes for each row
		when (new.status = 'dead' and old.status <> 'dead') execute function stop('dead');
	create trigger stop_gone before update on sandboxes for each row
		when (new.destroyed_at is not null and old.destroyed_at is null) execute function stop('gone');`

// killing is a host whose programs are killed, with a house that launches into local boxes.
type killing struct {
	t *testing.T
	r *rows
	v *service
	f *front

	env []string // of launches, besides the service's

	meanwhile func() // another host's work, while a program stops at its place; nil for none
}

func newKilling(t *testing.T) *killing {
	k := &killing{t: t, r: newRows(t), v: newService(t)}
	k.r.exec(t, `insert into environments (id, house_id, name, runtime) values ('env1', 'house1', 'base', 'local')`)
	k.r.exec(t, stops)
	k.v.env = k.r.env("serve")
	k.v.start(t)
	k.f = newFront(t, k.v.addr)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(k.v.dir, "agents")
	plan := filepath.Join(k.v.dir, "plan")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(path, "pi")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plan, []byte("prompt\nsay done"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.env = []string{
		"PATH=" + path + ":" + os.Getenv("PATH"), fakeagent.PlanVar + "=" + plan, "GORACE=atexit_sleep_ms=0",
		"ARBE_BOX_STREAM_URL=http://" + k.v.addr, "ARBE_STREAM_URL=http://" + k.f.addr,
	}
	return k
}

// command is arbe behind the front.
func (k *killing) command(args ...string) *exec.Cmd {
	cmd := k.v.arbe(args...)
	cmd.Env = append(cmd.Env, k.env...)
	return cmd
}

// launch is the launch of a run on a thread.
func (k *killing) launch(id string) *exec.Cmd {
	return k.command("launch", "--thread", id, "--environment", "env1", "--env", fakeagent.PlanVar,
		"--setup", "echo ready >ready", "--", "do it")
}

// killedAt starts a program, kills it where it stops, and reports whether it was there. A place is one of a trigger, or
// what an entry has that the program posts.
func (k *killing) killedAt(cmd *exec.Cmd, place string) {
	k.t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	hold := k.atRow
	if strings.Contains(place, ".") {
		hold = k.atEntry
	}
	release, there := hold(place)
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	stopped := false
	until(k.t, "a program that stops or ends", func() bool {
		select {
		case <-ended:
			return true
		default:
			stopped = there()
			return stopped
		}
	})
	if stopped && k.meanwhile != nil {
		k.meanwhile()
	}
	_ = cmd.Process.Kill() // it may have ended
	<-ended
	release()
	if !stopped {
		k.t.Errorf("it was never there:\n%s", &out)
	}
}

// atEntry holds the first request that has a text, from the program to the server.
func (k *killing) atEntry(text string) (release func(), there func() bool) {
	held, freed := make(chan struct{}), make(chan struct{})
	k.f.hold(text, held, freed)
	there = func() bool {
		select {
		case <-held:
			return true
		default:
			return false
		}
	}
	return func() {
		k.f.down() // what was held does not arrive
		close(freed)
		k.f.up(k.t)
	}, there
}

// atRow holds the transactions that come to a place.
func (k *killing) atRow(place string) (release func(), there func() bool) {
	k.t.Helper()
	ctx := context.WithoutCancel(k.t.Context())
	c, err := pgx.Connect(ctx, k.r.url)
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := c.Exec(ctx, "select pg_advisory_lock(4242)"); err != nil {
		k.t.Fatal(err)
	}
	k.r.exec(k.t, "insert into stops (place) values ($1)", place)
	there = func() bool {
		return k.r.text(k.t, `select count(*)::text from pg_locks
			where locktype = 'advisory' and not granted and objid = 4242`) != "0"
	}
	return func() {
		k.r.exec(k.t, "delete from stops")
		if err := c.Close(ctx); err != nil {
			k.t.Error(err)
		}
	}, there
}

// settles lets the time pass that the rows of a dead host are left alone, and reconciles until nothing is left.
func (k *killing) settles(id string) {
	k.t.Helper()
	var out []byte
	ok := false
	defer func() {
		if !ok {
			k.t.Logf("the last reconcile:\n%s\nrows: %s\nthread:\n%s", out, k.state(id), k.entries(id))
		}
	}()
	until(k.t, "rows and boxes that are settled", func() bool {
		k.r.exec(k.t, "update sandboxes set pending_until = now() - interval '1 s' where status = 'pending'")
		k.r.exec(k.t, "update threads set claimed_at = now() - interval '1 h' where claimed_at is not null")
		out, _ = k.command("reconcile", "--all", "--orphan-after", "300ms").CombinedOutput() // repeated if it fails
		return k.state(id) == k.wants(id)
	})
	ok = true
}

// state returns a thread's status, and the numbers of all claims, boxes, holds and machines that are left.
func (k *killing) state(id string) string {
	rows := k.r.text(k.t, `select concat_ws(' ',
		(select status from threads where id = $1),
		(select count(*) from threads where claimed_run is not null), 'claims,',
		(select count(*) from sandboxes where status <> 'dead' or destroyed_at is null), 'boxes,',
		(select count(*) from sandbox_holds), 'holds')`, id)
	machines, err := filepath.Glob(filepath.Join(k.v.dir, "boxes", "*"))
	if err != nil {
		k.t.Fatal(err)
	}
	return fmt.Sprintf("%s, %d machines", rows, len(machines))
}

// wants is the state of a thread that is settled, by its log.
func (k *killing) wants(id string) string {
	var f thread.Fold
	for _, e := range k.v.entries(k.t, id) {
		f.Add(e)
	}
	if f.Status() == thread.StatusRunning {
		return "an end"
	}
	return f.Status() + " 0 claims, 0 boxes, 0 holds, 0 machines"
}

func (k *killing) entries(id string) string {
	var all strings.Builder
	for _, e := range k.v.entries(k.t, id) {
		fmt.Fprintf(&all, "%s %.300s\n", e.ID, e.Payload)
	}
	return all.String()
}

// runs runs a launch to the end of its run.
func (k *killing) runs(id string) {
	k.t.Helper()
	if out, err := k.launch(id).CombinedOutput(); err != nil {
		k.t.Fatalf("arbe launch: %v\n%s\nrows: %s\n%s", err, out, k.state(id), k.entries(id))
	}
	until(k.t, "the run's end", func() bool {
		var f thread.Fold
		for _, e := range k.v.entries(k.t, id) {
			f.Add(e)
		}
		return f.Status() != thread.StatusRunning
	})
}

// once checks that nothing on a thread is there twice: each run has one beginning, at most one box, and one verdict.
func (k *killing) once(id string, runs int) {
	k.t.Helper()
	var f thread.Fold
	count := map[string]int{}
	for _, e := range k.v.entries(k.t, id) {
		f.Add(e)
		for _, suffix := range []string{".sandbox", ".running", ".prompt", ".orphan.0", ".end.0"} {
			if strings.HasSuffix(e.ID, suffix) {
				count[e.ID]++
			}
		}
	}
	for entry, n := range count {
		if n != 1 {
			k.t.Errorf("%s is there %d times", entry, n)
		}
	}
	all := f.Runs()
	if len(all) != runs {
		k.t.Errorf("%d runs, want %d", len(all), runs)
	}
	if last := all[len(all)-1]; last.Status != thread.StatusCompleted {
		k.t.Errorf("the last run is %s", last.Status)
	}
	if got := k.r.text(k.t, "select (count(*) <= $1)::text from sandboxes", runs); got != "true" {
		k.t.Errorf("more boxes than runs")
	}
}

// KILL of arbe launch at each of its steps, and of arbe reconcile. Another process settles what is left: rows equal the
// log, no box is left without a row or a hold without a run, and nothing is there twice. Then the thread runs again.
func TestFullRunKills(t *testing.T) {
	t.Parallel()
	k := newKilling(t)
	for _, tt := range []struct {
		name, place string
		runs        int // of the launch that is killed: 1 if it is on the log
	}{
		{"before the log has the run", `.running"`, 0},
		{"before the row is claimed", "claim", 1},
		{"before the box has a row", "make", 1},
		{"before the row has the machine", "made", 1},
		{"before the log has the box", `.sandbox"`, 1},
		{"after the setup", "signal.setup.command", 1},
		{"before the box is live", "live", 1},
	} {
		t.Run("launch "+tt.name, func(t *testing.T) {
			k := k.of(t)
			id := "t" + strings.NewReplacer(`"`, "", ".", "").Replace(tt.place)
			k.killedAt(k.launch(id), tt.place)
			if tt.runs > 0 {
				k.settles(id)
			}
			k.runs(id)
			k.settles(id)
			k.once(id, tt.runs+1)
		})
	}
	for _, place := range []string{"dead", "gone"} {
		t.Run("reconcile before the row is "+place, func(t *testing.T) {
			k := k.of(t)
			id := "r" + place
			k.runs(id)
			k.killedAt(k.command("reconcile", id), place)
			k.settles(id)
			k.once(id, 1)
		})
	}
	t.Run("launch after the box has died", func(t *testing.T) {
		k := k.of(t)
		const id = "replaced"
		k.runs(id)
		k.settles(id)
		k.killedAt(k.launch(id), ".resumed")
		k.settles(id)
		k.runs(id)
		k.settles(id)
		k.once(id, 3)
	})
}

// of returns the same host for a part of the test, with no boxes of the parts before.
func (k *killing) of(t *testing.T) *killing {
	part := *k
	part.t = t
	k.r.exec(t, "delete from threads")
	k.r.exec(t, "delete from sandboxes")
	return &part
}
