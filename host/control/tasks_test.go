package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
)

// delegation is a task from a new chat of the house.
func delegation(t testing.TB, db *control.DB, h house) rows.Task {
	t.Helper()
	parent := must(db.Host().CreateThread(t.Context(), rows.NewThread{House: h.id, Environment: h.env}))(t)
	return rows.Task{Parent: parent.ID, Harness: "pi", Prompt: "do it", Author: h.member}
}

// A delegated task is an idle thread of the parent's house, with the bot that is wanted.
func TestDelegate(t *testing.T) {
	db, _ := open(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	d.Model, d.Repo, d.Branch, d.Live = "m", "org/repo", "b", true
	for name, s := range map[string]control.Scope{"a member": db.As(h.member), "the host": db.Host()} {
		o := delegated(s.Delegate(t.Context(), d))(t)
		want := rows.Task{
			Thread: o.Thread, House: h.id, Parent: d.Parent, Agent: h.bot, Author: h.member,
			Result: h.bot, Prompt: "do it", Harness: "pi", Model: "m", Live: true, Environment: h.env,
			Repo: "org/repo", Branch: "b",
		}
		if o != want {
			t.Errorf("by %s: got %+v, want %+v", name, o, want)
		}
		th := must(db.Host().Thread(t.Context(), o.Thread))(t)
		if th.Status != rows.ThreadIdle || th.Parent != d.Parent || th.Agent != h.bot || th.Sandbox != "" ||
			th.Environment != h.env || th.House != h.id {
			t.Errorf("by %s: the row is %+v", name, th)
		}
	}
	_, _, err := db.As(h.member).Delegate(t.Context(), with(d, func(d *rows.Task) { d.Trusted = true }))
	is(t, err, rows.ErrForbidden)
	d.Trusted = true
	if o := delegated(db.Host().Delegate(t.Context(), d))(t); !o.Trusted {
		t.Error("a task of the host is not trusted")
	}
}

// delegated fails the test on an error of Delegate.
func delegated(o rows.Task, _ bool, err error) func(testing.TB) rows.Task {
	return must(o, err)
}

func with(d rows.Task, change func(*rows.Task)) rows.Task {
	change(&d)
	return d
}

// What a task needs and does not find is an error that names it, and makes no row.
func TestDelegateErrors(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, host := t.Context(), db.Host()
	h, other := newHouse(t, db), newHouse(t, db)
	d := delegation(t, db, h)
	archived := must(host.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "old"}))(t).ID
	check(t, host.ArchiveEnvironment(ctx, archived))
	bare := must(host.CreateThread(ctx, rows.NewThread{House: h.id}))(t).ID
	dead := must(resolve(ctx, db, delegation(t, db, h).Parent, ""))(t).Row.ID
	check(t, boxes(db).Gone(ctx, dead))
	elsewhere := must(resolve(ctx, db, delegation(t, db, other).Parent, ""))(t).Row.ID
	local := must(host.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "local", Runtime: "local"}))(t).ID
	localBox := must(resolve(ctx, db, delegation(t, db, h).Parent, local))(t).Row.ID
	for _, tt := range []struct {
		name   string
		change func(*rows.Task)
		want   error
		text   string
	}{
		{"no such parent", func(d *rows.Task) { d.Parent = "none" }, rows.ErrAbsent, "thread none"},
		{"no bot of the harness", func(d *rows.Task) { d.Harness = "codex" }, rows.ErrNoBot, "codex"},
		{"a bot of another harness", func(d *rows.Task) {
			d.Agent, d.Harness = h.bot, "codex"
		}, rows.ErrInvalid, "a bot of the harness pi"},
		{"a human", func(d *rows.Task) { d.Agent, d.Harness = h.member, "" }, rows.ErrInvalid, "no bot"},
		{"a bot of another house", func(d *rows.Task) {
			d.Agent, d.Harness = other.bot, ""
		}, rows.ErrReference, "the driving agent"},
		{"no environment", func(d *rows.Task) { d.Parent = bare }, rows.ErrNoRecipe, bare},
		{"an archived environment", func(d *rows.Task) { d.Environment = archived }, rows.ErrArchived, ""},
		{"another house's environment", func(d *rows.Task) {
			d.Environment = other.env
		}, rows.ErrReference, "the environment"},
		{"a parent without a sandbox", func(d *rows.Task) {
			d.Sandbox = rows.SandboxOfParent
		}, rows.ErrNoSandbox, d.Parent},
		{"a dead sandbox", func(d *rows.Task) { d.Sandbox = dead }, rows.ErrDeadBox, dead},
		{"another house's sandbox", func(d *rows.Task) { d.Sandbox = elsewhere }, rows.ErrAbsent, elsewhere},
		{"a sandbox and an environment", func(d *rows.Task) {
			d.Sandbox, d.Environment = dead, h.env
		}, rows.ErrInvalid, ""},
	} {
		_, _, err := host.Delegate(ctx, with(d, tt.change))
		if is(t, err, tt.want); err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v does not name %q", tt.name, err, tt.text)
		}
	}
	away := control.StoreOf(db)
	away.NoLocal = true
	for name, change := range map[string]func(*rows.Task){
		"environment": func(d *rows.Task) { d.Environment = local },
		"sandbox":     func(d *rows.Task) { d.Sandbox = localBox },
	} {
		_, _, err := away.As("").Delegate(ctx, with(d, change))
		if is(t, err, rows.ErrLocal); err != nil && !strings.Contains(err.Error(), local) {
			t.Errorf("a local %s, where that is not for members: %v does not name it", name, err)
		}
	}
	_, _, err := db.As(other.member).Delegate(ctx, d)
	is(t, err, rows.ErrAbsent)
	if all := must(host.Threads(ctx, rows.Query{Parent: d.Parent}))(t); len(all) > 0 {
		t.Errorf("rows were made: %+v", all)
	}
}

// The environment of a task: that of the call, of the parent, of the house; of a shared sandbox its own.
func TestDelegatePlace(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, host := t.Context(), db.Host()
	h := newHouse(t, db)
	called := must(host.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "called"}))(t).ID
	fallback := must(host.CreateEnvironment(ctx, h.id, rows.Recipe{Name: "default"}))(t).ID
	check(t, host.SetDefaultEnvironment(ctx, h.id, fallback))
	d := delegation(t, db, h)
	bare := must(host.CreateThread(ctx, rows.NewThread{House: h.id}))(t).ID
	box := must(resolve(ctx, db, d.Parent, called))(t).Row.ID
	for name, tt := range map[string]struct {
		change    func(*rows.Task)
		env, uses string
	}{
		"the call's":    {func(d *rows.Task) { d.Environment = called }, called, ""},
		"the parent's":  {func(*rows.Task) {}, h.env, ""},
		"the house's":   {func(d *rows.Task) { d.Parent = bare }, fallback, ""},
		"the sandbox's": {func(d *rows.Task) { d.Sandbox = box }, called, box},
		"that of the parent's sandbox": {func(d *rows.Task) {
			d.Sandbox = rows.SandboxOfParent
		}, called, box},
	} {
		o := delegated(db.As(h.member).Delegate(ctx, with(d, tt.change)))(t)
		if o.Environment != tt.env || o.Sandbox != tt.uses {
			t.Errorf("%s: environment %s, sandbox %s", name, o.Environment, o.Sandbox)
		}
	}
}

// The result on the parent is written by a bot: the one that delegates, else the parent's, else the task's own.
func TestDelegateResult(t *testing.T) {
	db, _ := open(t, control.Config{})
	ctx, host := t.Context(), db.Host()
	h := newHouse(t, db)
	brain := must(host.CreateBot(ctx, "Brain", "codex"))(t).ID
	must(host.AddMember(ctx, h.id, brain, rows.RoleMember))(t)
	d := delegation(t, db, h)
	child := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Agent: brain, Environment: h.env}))(t).ID
	third := must(host.CreateBot(ctx, "Third", "codex"))(t).ID
	must(host.AddMember(ctx, h.id, third, rows.RoleMember))(t)
	for name, tt := range map[string]struct {
		change func(*rows.Task)
		want   string
	}{
		"a person, on a chat":  {func(*rows.Task) {}, h.bot},
		"a bot, on a chat":     {func(d *rows.Task) { d.Author = brain }, brain},
		"a person, on a bot's": {func(d *rows.Task) { d.Parent = child }, brain},
		"another bot, there":   {func(d *rows.Task) { d.Parent, d.Author = child, third }, third},
		"a name, on a chat":    {func(d *rows.Task) { d.Author = "somebody" }, h.bot},
	} {
		if o := delegated(host.Delegate(ctx, with(d, tt.change)))(t); o.Result != tt.want {
			t.Errorf("%s: the result is by %s, want %s", name, o.Result, tt.want)
		}
	}
}

// A task with an id is made once, and returned again, also where another one could not be made any more. Another order
// with the id is refused, and the error names what differs.
func TestDelegateAgain(t *testing.T) {
	db, _ := open(t, control.Config{})
	h := newHouse(t, db)
	host := db.Host()
	d := delegation(t, db, h)
	d.Thread, d.Harness, d.Agent = "t"+strings.ToLower(uuid.NewString()[:8]), "", h.bot
	again := func() rows.Task {
		t.Helper()
		o, fresh, err := db.As(h.member).Delegate(t.Context(), d)
		if err != nil || fresh {
			t.Fatalf("repeated: fresh %v, %v", fresh, err)
		}
		return o
	}
	first := delegated(db.As(h.member).Delegate(t.Context(), d))(t)
	if o := again(); o != first || first.Thread != d.Thread {
		t.Errorf("got %+v, then %+v", first, o)
	}
	elsewhere := delegation(t, db, h).Parent
	other := must(host.CreateEnvironment(t.Context(), h.id, rows.Recipe{Name: "other"}))(t).ID
	for differs, change := range map[string]func(*rows.Task){
		"task":        func(d *rows.Task) { d.Prompt = "another" },
		"thread":      func(d *rows.Task) { d.Parent = elsewhere },
		"agent":       func(d *rows.Task) { d.Agent, d.Harness = "", "pi" },
		"harness":     func(d *rows.Task) { d.Harness = "pi" },
		"environment": func(d *rows.Task) { d.Environment = other },
		"sandbox":     func(d *rows.Task) { d.Sandbox = rows.SandboxOfParent },
		"repo":        func(d *rows.Task) { d.Repo = "org/repo" },
		"branch":      func(d *rows.Task) { d.Branch = "b" },
		"model":       func(d *rows.Task) { d.Model = "m" },
		"live":        func(d *rows.Task) { d.Live = true },
	} {
		_, _, err := db.As(h.member).Delegate(t.Context(), with(d, change))
		if is(t, err, rows.ErrTaken); err != nil && !strings.Contains(err.Error(), "its "+differs+" differs") {
			t.Errorf("%v does not name the %s", err, differs)
		}
	}
	_, _, err := db.As(h.member).Delegate(t.Context(), with(d, func(d *rows.Task) { d.Thread = d.Parent }))
	is(t, err, rows.ErrTaken)
	stranger := delegation(t, db, newHouse(t, db))
	stranger.Thread = d.Thread
	_, _, err = host.Delegate(t.Context(), stranger)
	is(t, err, rows.ErrTaken)

	// What the order has found by then may change.
	closed := true
	must(host.ChangeThread(t.Context(), d.Parent, rows.ThreadChange{Environment: &other, Closed: &closed}))(t)
	if o := again(); o != first {
		t.Errorf("got %+v, then %+v", first, o)
	}
}

// A closed thread delegates no task.
func TestDelegateClosed(t *testing.T) {
	db, _ := open(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	closed := true
	must(db.Host().ChangeThread(t.Context(), d.Parent, rows.ThreadChange{Closed: &closed}))(t)
	for name, s := range map[string]control.Scope{"a member": db.As(h.member), "the host": db.Host()} {
		_, _, err := s.Delegate(t.Context(), d)
		if is(t, err, rows.ErrClosed); err != nil && !strings.Contains(err.Error(), d.Parent) {
			t.Errorf("by %s: %v does not name the thread", name, err)
		}
	}
	closed = false
	must(db.Host().ChangeThread(t.Context(), d.Parent, rows.ThreadChange{Closed: &closed}))(t)
	delegated(db.As(h.member).Delegate(t.Context(), d))(t)
}

// counting is a host that counts its launches.
type counting struct {
	mu       sync.Mutex
	launched map[string]int
	launch   func(ctx context.Context, o rows.Task) error // nil for one that succeeds
}

func (c *counting) Announce(context.Context, rows.Task) error { return nil }

func (c *counting) Launch(ctx context.Context, o rows.Task) (again bool, err error) {
	c.mu.Lock()
	if c.launched == nil {
		c.launched = map[string]int{}
	}
	c.launched[o.Thread]++
	c.mu.Unlock()
	if c.launch != nil {
		return false, c.launch(ctx, o)
	}
	return false, nil
}

func (c *counting) Refuse(context.Context, rows.Task, error) error { return errors.New("refused") }

func (c *counting) count(thread string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.launched[thread]
}

// play runs provisioners until a condition, and stops them.
func play(t *testing.T, until func() bool, all ...provision.Provisioner) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, p := range all {
		p.Every, p.Log = 5*time.Millisecond, slog.New(slog.DiscardHandler)
		running.Go(func() { check(t, p.Run(ctx)) })
	}
	for !until() {
		time.Sleep(time.Millisecond) // between two looks
	}
	cancel()
	running.Wait()
}

// ended reports whether no task is left in a database.
func ended(t *testing.T, db *control.DB) func() bool {
	return func() bool {
		return len(must(control.Queue{DB: db, Host: "looks"}.Waiting(t.Context()))(t)) == 0
	}
}

// Two hosts launch twenty tasks, each once.
func TestProvisioners(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	var ids []string
	for range 20 {
		ids = append(ids, delegated(db.Host().Delegate(t.Context(), d))(t).Thread)
	}
	a, b := &counting{}, &counting{}
	play(t, ended(t, db),
		provision.Provisioner{Queue: control.Queue{DB: db, Host: "a"}, Host: a},
		provision.Provisioner{Queue: control.Queue{DB: db, Host: "b"}, Host: b})
	for _, id := range ids {
		if n := a.count(id) + b.count(id); n != 1 {
			t.Errorf("task %s was launched %d times", id, n)
		}
	}
	if n := len(a.launched) + len(b.launched); n != len(ids) {
		t.Errorf("%d tasks were launched", n)
	}
}

// The task of a host that has died is another's after the lease. What the dead one does later has no effect.
func TestDeadProvisioner(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	id := delegated(db.Host().Delegate(t.Context(), delegation(t, db, newHouse(t, db))))(t).Thread
	dead := control.Queue{DB: db, Host: "dead"}
	if took := must(dead.Take(t.Context(), time.Hour, 10))(t); len(took) != 1 || took[0].Thread != id {
		t.Fatalf("took %+v", took)
	}
	other := control.Queue{DB: db, Host: "other"}
	if took := must(other.Take(t.Context(), time.Hour, 10))(t); len(took) != 0 {
		t.Errorf("took %+v before the lease's end", took)
	}
	check(t, dead.Renew(t.Context(), id, time.Millisecond))
	var attempts int
	c := &counting{launch: func(_ context.Context, o rows.Task) error {
		attempts = o.Attempts
		for _, err := range []error{
			dead.Renew(t.Context(), id, time.Hour), dead.PutBack(t.Context(), id, 0, false), dead.Done(t.Context(), id),
		} {
			is(t, err, rows.ErrLost)
		}
		return nil
	}}
	play(t, ended(t, db), provision.Provisioner{Queue: other, Host: c})
	if c.count(id) != 1 || attempts != 2 {
		t.Errorf("%d launches, at attempt %d", c.count(id), attempts)
	}
}

// A host that is stopped in its launch leaves it to another one at once.
func TestStoppedProvisioner(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	id := delegated(db.Host().Delegate(t.Context(), delegation(t, db, newHouse(t, db))))(t).Thread
	stopped := &counting{launch: func(ctx context.Context, _ rows.Task) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	play(t, func() bool { return stopped.count(id) > 0 },
		provision.Provisioner{Queue: control.Queue{DB: db, Host: "a"}, Host: stopped})
	took := must(control.Queue{DB: db, Host: "b"}.Take(t.Context(), time.Hour, 1))(t)
	if len(took) != 1 || took[0].Attempts != 1 {
		t.Errorf("took %+v", took)
	}
}

// A deleted house has no task any more, also while it is launched.
func TestDeletedTask(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	id := delegated(db.Host().Delegate(t.Context(), d))(t).Thread
	q := control.Queue{DB: db, Host: "a"}
	must(q.Take(t.Context(), time.Hour, 1))(t)
	check(t, db.Host().DeleteHouse(t.Context(), h.id))
	is(t, q.Renew(t.Context(), id, time.Hour), rows.ErrLost)
	if took := must(q.Take(t.Context(), time.Hour, 1))(t); len(took) != 0 {
		t.Errorf("took %+v", took)
	}
}

// BenchmarkDelegate makes the rows of tasks. It reports how long a caller waits for the child's id.
func BenchmarkDelegate(b *testing.B) {
	db := must(control.Open(b.Context(), databases.New(b), control.Config{}))(b)
	defer db.Close()
	h := newHouse(b, db)
	d := delegation(b, db, h)
	var all []time.Duration
	for i := range b.N {
		d.Prompt = fmt.Sprint("task ", i)
		began := time.Now()
		delegated(db.As(h.member).Delegate(b.Context(), d))(b)
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)*99/100].Seconds()*1000, "ms-p99")
	b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms-median")
}

// A task that is to be withdrawn and the provisioners race for it: one of them gets it. The one who withdraws gets also
// a task that is not due, and never one that a host has.
func TestTakeOne(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	q := control.Queue{DB: db, Host: "withdraws"}
	var ids []string
	for range 20 {
		ids = append(ids, delegated(db.Host().Delegate(t.Context(), d))(t).Thread)
	}
	launches := &counting{}
	withdrawn := map[string]bool{}
	var racing sync.WaitGroup
	racing.Go(func() {
		for _, id := range slices.Backward(ids) { // the provisioner begins with the others
			o, is, err := q.TakeOne(t.Context(), id, time.Hour)
			check(t, err)
			if withdrawn[id] = is; is && o.Thread == id {
				check(t, q.Done(t.Context(), id))
			}
		}
	})
	play(t, ended(t, db), provision.Provisioner{Queue: control.Queue{DB: db, Host: "a"}, Host: launches})
	racing.Wait()
	for _, id := range ids {
		if n := launches.count(id); n > 1 || (n == 1) == withdrawn[id] {
			t.Errorf("task %s was launched %d times, withdrawn %v", id, n, withdrawn[id])
		}
	}
	is := func(id string) bool {
		_, is, err := q.TakeOne(t.Context(), id, 0)
		check(t, err)
		return is
	}
	id := delegated(db.Host().Delegate(t.Context(), d))(t).Thread
	other := control.Queue{DB: db, Host: "b"}
	if took := must(other.Take(t.Context(), time.Hour, 1))(t); len(took) != 1 || is(id) || is(ids[0]) {
		t.Errorf("taken from a host, or not waiting: %+v", took)
	}
	check(t, other.PutBack(t.Context(), id, time.Hour, false))
	if o := must(q.Queued(t.Context(), id))(t); !is(id) || o.Prompt != "do it" || o.Attempts != 1 {
		t.Errorf("not due, and not taken: %+v", o)
	}
	if _, err := q.Queued(t.Context(), ids[0]); !errors.Is(err, rows.ErrAbsent) {
		t.Errorf("a task that has ended waits: %v", err)
	}
}

// The thread of a task that waits can be deleted, and is not launched then. That of a task that a host launches stays.
func TestDeleteQueued(t *testing.T) {
	db, _ := openAlone(t, control.Config{})
	h := newHouse(t, db)
	d := delegation(t, db, h)
	q := control.Queue{DB: db, Host: "a"}
	gone, held := delegated(db.Host().Delegate(t.Context(), d))(t), delegated(db.Host().Delegate(t.Context(), d))(t)
	if !must(db.As(h.member).Thread(t.Context(), gone.Thread))(t).Waits {
		t.Error("the row of a task that waits does not say so")
	}
	check(t, db.As(h.member).DeleteThread(t.Context(), gone.Thread, nil))
	if took := must(q.Take(t.Context(), time.Hour, 9))(t); len(took) != 1 || took[0].Thread != held.Thread {
		t.Errorf("took %+v", took)
	}
	for _, id := range []string{held.Thread, d.Parent} {
		if err := db.As(h.member).DeleteThread(t.Context(), id, nil); !errors.Is(err, rows.ErrRunning) {
			t.Errorf("deleted thread %s with a task that is launched: %v", id, err)
		}
	}
	check(t, q.PutBack(t.Context(), held.Thread, time.Hour, true))
	check(t, db.Host().DeleteThread(t.Context(), d.Parent, nil))
}
