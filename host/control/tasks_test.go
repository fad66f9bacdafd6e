package control_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/control"
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
	away.Barred = []string{"local"}
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
	brain := must(host.CreateBot(ctx, rows.NewBot{Name: "Brain", Runtime: "codex"}))(t).ID
	must(host.AddMember(ctx, h.id, brain, rows.RoleMember))(t)
	d := delegation(t, db, h)
	child := must(host.CreateThread(ctx, rows.NewThread{House: h.id, Agent: brain, Environment: h.env}))(t).ID
	third := must(host.CreateBot(ctx, rows.NewBot{Name: "Third", Runtime: "codex"}))(t).ID
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
	d.Repo, d.Branch = "org/repo", "b"
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
		"sandbox":     func(d *rows.Task) { d.Repo, d.Branch, d.Sandbox = "", "", rows.SandboxOfParent },
		"repo":        func(d *rows.Task) { d.Repo = "org/other" },
		"branch":      func(d *rows.Task) { d.Branch = "c" },
		"push":        func(d *rows.Task) { d.Push = true },
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
