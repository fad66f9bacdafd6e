package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakerows"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

var errRows = errors.New("the database fails")

// processRows are rows as a process reaches them. No row of a machine in which something lives may be condemned.
type processRows struct {
	fakerows.Rows
	p *process
}

func (r processRows) Condemn(ctx context.Context, id string, seen []rows.Hold, judged []string) (bool, error) {
	w := r.p.w
	row, _, _ := w.rows.As(func(do func() error) error { return do() }).Row(ctx, id)
	done, err := r.Rows.Condemn(ctx, id, seen, judged)
	m := (view{cloud: w.cloud}).find(row.Ref)
	w.note("%s condemns %s, the row of %s: %v, %v; it is there: %v", r.p.name, id, row.Ref, done, err, m != nil)
	if m != nil && done {
		if what := m.look().live(); what != "" {
			w.broken("%s condemned %s under the live %s", r.p.name, row.Ref, what)
		}
	}
	return done, err
}

// rowsOf returns the rows as a process reaches them.
func (w *world) rowsOf(p *process) processRows {
	return processRows{p: p, Rows: w.rows.As(func(do func() error) error {
		f := w.fault()
		dies, applied := p.step()
		switch {
		case dies && applied, !dies && f == unheard:
			_ = do()
			fallthrough
		case dies, p.dead(), f == lost, f == refused, f == hanging:
			return errRows
		}
		return do()
	})}
}

// house lets threads of a house work: three share a box, and a task has one of its own or shares that, too. A person
// removes their box now and then.
func (w *world) house(users *sync.WaitGroup) {
	w.rows.Thread("h1", "")
	queue := &queue{w: w, tasks: map[string]*queued{}}
	done := make(chan struct{})
	var all sync.WaitGroup
	for i, id := range []string{"h1", "h2", "h3"} {
		all.Go(func() {
			if i > 0 && !w.share(id) {
				return
			}
			w.member(id)
		})
	}
	for _, id := range []string{"k1", "k2"} {
		all.Go(func() {
			sleepIn(w.ctx, time.Duration(w.rand(int(6*time.Hour))))
			box := w.rows.Box("h1").ID
			if w.rand(2) == 0 {
				box = ""
			}
			w.rows.Thread(id, box)
			queue.add(rows.Task{Thread: id, Prompt: "do it", Harness: "pi", Sandbox: box})
		})
	}
	users.Go(func() { all.Wait(); queue.wait(); close(done) })
	users.Go(func() { w.provision(queue, done) })
	users.Go(func() { w.remover(done) })
}

// ids returns the threads that hosts have noted.
func (w *world) ids() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.folds {
		if !strings.HasPrefix(id, "_box_") && id != "parent" {
			ids = append(ids, id)
		}
	}
	return append(ids, "t1", "t2", "t3")
}

// share makes a thread on the box of h1.
func (w *world) share(id string) bool {
	for range 100 {
		if box := w.rows.Box("h1"); box.ID != "" {
			w.rows.Thread(id, box.ID)
			return true
		}
		sleepIn(w.ctx, 10*time.Minute)
	}
	return false
}

// member works on a thread of the house: runs, and commands beside them.
func (w *world) member(id string) {
	for n := range 2 + w.rand(4) {
		sleepIn(w.ctx, time.Duration(w.rand(int(90*time.Minute))))
		if w.rand(2) == 0 {
			w.execute(id, fmt.Sprintf("x%d", n))
			continue
		}
		task := launch.Task{
			Thread: id, Run: fmt.Sprintf("r%d", n), Prompt: "do it", Harness: "pi", Resume: n > 0,
			Box: w.options(),
		}
		p := w.process("launch "+id+"/"+task.Run, w.killAt(60))
		l := w.launcher(p, id)
		l.Rows = w.resolver(p)
		key := id + "/" + task.Run
		w.set(func() { w.launching[key] = p })
		_, err := l.Launch(p.ctx, task)
		w.set(func() { delete(w.launching, key) })
		w.note("%s: %v", p.name, err)
		p.cancel()
	}
}

// options are those of a new box: some are for one run, some have a repository.
func (w *world) options() sandbox.Options {
	o := sandbox.Options{Ephemeral: w.rand(2) == 0, Labels: map[string]string{}}
	if w.rand(2) == 0 {
		o.Labels[sandbox.LabelTree] = sandbox.TreeRepository
	}
	return o
}

func (w *world) resolver(p *process) *resolve.Resolver {
	return &resolve.Resolver{
		Rows: w.rowsOf(p), Provider: view{w.cloud, p},
		Client: func(id string) *client.Client { return w.client(p, id) },
	}
}

// execute runs a command in the box of a thread, made where there is none.
func (w *world) execute(id, command string) {
	p := w.process("exec "+id+"/"+command, w.killAt(40))
	defer p.cancel()
	l := w.launcher(p, id)
	l.Rows = w.resolver(p)
	h := &exec.Host{
		Client: w.client(p, id),
		Box:    exec.Rowed{Launcher: l, Task: launch.Task{Thread: id, Harness: "pi", Box: w.options()}}.Box,
		Lease: func(ctx context.Context, box sandbox.Ref) (lease.Lease, error) {
			rows := w.rowsOf(p)
			row, err := rows.BoxAt(ctx, box.Provider, box.ID)
			return rows.Lease(row), err
		},
		Tokens:    func(string, string, string, time.Duration) (string, string, error) { return "w", "r", nil },
		StreamURL: func(string) (string, error) { return "http://threads.test", nil },
		Runner:    func(string) (string, error) { return w.runner, nil },
	}
	posted, err := h.Post(p.ctx, exec.Request{Thread: id, ID: command, Argv: []string{"make"}})
	if err == nil {
		_, err = h.Fire(p.ctx, posted)
	}
	w.note("%s: %v", p.name, err)
}

// remover removes the box that the threads share, as a person does: some times with what runs in it cancelled first.
func (w *world) remover(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(30+w.rand(180)) * time.Minute):
		}
		if ref := w.rows.Box("h1").Ref; ref != "" {
			w.remove(ref, w.rand(2) == 0, w.killAt(60))
		}
	}
}

// remove is arbe sandbox rm. It reports whether the box is deleted.
func (w *world) remove(id string, cancels bool, killAt int) bool {
	p := w.process(fmt.Sprintf("rm %s (--cancel: %v)", id, cancels), killAt)
	p.hand = true
	defer p.cancel()
	v := view{w.cloud, p}
	r := &reap.Reaper{
		Name: "cloud", Provider: v, Rows: w.rowsOf(p), Unsaved: unsaved,
		Client: func(id string) (*client.Client, error) { return w.client(p, id), nil },
	}
	b := reap.Box{Box: sandbox.Box{Ref: sandbox.Ref{Provider: "cloud", ID: id}}}
	boxes, err := v.List(p.ctx, nil)
	if err != nil {
		return false
	}
	if listed, is := reap.Find(boxes, id); is {
		b = reap.Box{Box: listed, Listed: true}
	}
	var verdict reap.Verdict
	if cancels {
		verdict, err = r.Vacate(p.ctx, b, time.Minute, func(reap.Use) {})
	} else {
		verdict, err = r.Remove(p.ctx, b)
	}
	w.note("%s: %v %q, %v", p.name, verdict.What, verdict.Against, err)
	return err == nil && verdict.What != reap.Wait
}

// clear removes the boxes that are kept until they are removed by hand: nothing else is left by now.
func (w *world) clear() {
	for _, m := range w.cloud.machines() {
		if m.labels["foreign"] != "" || m.labels[sandbox.LabelRow] == "" || m.labels[sandbox.LabelEphemeral] != "" {
			continue
		}
		if now := m.look(); now.unsaved || now.state != "started" && m.labels[sandbox.LabelTree] != "" {
			w.cloud.vanish(m.id) // rm refuses it, and rm --force asks nothing
		} else if !w.remove(m.id, false, 0) {
			w.broken("%s, in which nothing is alive or unsaved, can't be removed", m.id)
		}
	}
	time.Sleep(time.Hour) // a reconciler comes by
}

// checkReleased checks that a box which is deleted was released, and that its threads have that.
func (w *world) checkReleased(by string, ref sandbox.Ref, now condition) {
	for id := range now.used {
		entry := thread.ReleasedID(thread.Sandbox{Provider: ref.Provider, Ref: ref.ID})
		if !slices.ContainsFunc(w.threads.entries(id), func(e thread.Entry) bool { return e.ID == entry }) {
			w.broken("%s deleted %s before %s had the signal of it", by, ref, id)
		}
	}
	if len(now.used) == 0 { // never used: its maker may delete it
		w.set(func() { w.discarded[ref.ID] = true })
		return
	}
	rows := w.rows.As(func(do func() error) error { return do() })
	row, _ := rows.BoxAt(context.Background(), ref.Provider, ref.ID)
	if row != "" {
		if s, _ := rows.Lease(row).Read(context.Background()); !s.Released {
			w.broken("%s deleted %s, which is not released: it is held by %+v", by, ref, s.Holds)
		}
		return
	}
	records := w.threads.entries(lease.Stream(ref))
	if len(records) == 0 || !strings.Contains(string(records[len(records)-1].Payload), `"release"`) {
		w.broken("%s deleted %s, which is not released", by, ref)
	}
}

// checkRows checks what is left of rows at the end.
func (w *world) checkRows() {
	ctx := context.Background()
	rows := w.rows.As(func(do func() error) error { return do() })
	boxes, _ := rows.Boxes(ctx, nil)
	for _, b := range boxes {
		w.broken("the row %s is left: %+v", b.ID, b)
	}
	if doubted, _ := rows.Doubted(ctx); len(doubted) > 0 {
		w.broken("rows are doubted: %v", doubted)
	}
	if notices, _ := rows.Notices(ctx); len(notices) > 0 {
		w.broken("threads have no signal of their box: %v", notices)
	}
	if stale, _ := rows.Stale(ctx); len(stale) > 0 {
		w.broken("claims or holds are left on %v", stale)
	}
}

// command is a command in a box, with its supervisor.
type command struct {
	w          *world
	thread, id string
	pid        int
	ctx        context.Context
	kill       context.CancelFunc

	mu     sync.Mutex
	begun  bool // its supervisor has posted
	ending bool // it posts its end
	over   bool
}

// alive reports whether the supervisor runs, and lives whether its command does.
func (x *command) alive() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.over
}

func (x *command) lives() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.begun && !x.ending && !x.over
}

func (x *command) change(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// startCommand starts a supervisor, which posts as a real one: its beginning, output at least each minute, its end. It
// ends where another has taken one of its numbers.
func (w *world) startCommand(m *machine, id, name string) {
	x := &command{w: w, thread: id, id: name, pid: w.pid()}
	x.ctx, x.kill = context.WithCancel(w.ctx)
	m.change(func(c *condition) { c.commands = append(c.commands, x) })
	w.set(func() { w.commands[id+"/"+name] = x })
	length, dies := time.Duration(w.rand(int(40*time.Minute))), w.rand(6) == 0
	w.wg.Go(func() {
		defer func() {
			x.change(func() { x.over = true })
			x.kill()
		}()
		cl := w.client(nil, id)
		n := 0
		post := func(payload any) bool {
			n++
			for {
				_, err := cl.Append(x.ctx, []thread.Entry{{
					ID: thread.ExecID(name, n), TS: thread.Stamp(time.Now()), Payload: thread.Marshal(payload),
				}})
				var se *client.StatusError
				if err == nil || errors.As(err, &se) && se.Status == 409 || x.ctx.Err() != nil {
					return err == nil
				}
				sleepIn(x.ctx, 5*time.Second)
			}
		}
		of := func(typ string) thread.Exec { return thread.Exec{Type: typ, ExecID: name} }
		ref := thread.Sandbox{Provider: "cloud", Ref: m.id}
		if !post(thread.ExecRunning{
			Exec: of(thread.TypeExecRunning), PID: x.pid, StartTicks: 9, Cwd: "/", Sandbox: &ref,
		}) {
			return
		}
		x.change(func() { x.begun = true })
		for end := time.Now().Add(length); time.Now().Before(end); {
			sleepIn(x.ctx, time.Duration(1+w.rand(60))*time.Second)
			if w.asked(id, thread.TypeExecCancel, name) {
				break
			}
			if !post(thread.ExecOutput{Exec: of(thread.TypeExecOutput), Stream: "stdout", Text: "."}) {
				return
			}
		}
		if dies {
			return
		}
		x.change(func() { x.ending = true })
		code := 0
		post(thread.ExecFinished{Exec: of(thread.TypeExecFinished), ExitCode: &code})
	})
}

// asked reports whether a thread asks a run or a command to end.
func (w *world) asked(id, typ, what string) bool {
	return slices.ContainsFunc(w.threads.entries(id), func(e thread.Entry) bool {
		return strings.Contains(string(e.Payload), `"`+typ+`"`) && strings.Contains(string(e.Payload), `"`+what+`"`)
	})
}

// pid returns the number of a new process.
func (w *world) pid() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids++
	return w.pids
}

// any returns a box of ours; "" for none.
func (c *cloud) any() string {
	all := slices.DeleteFunc(c.machines(), func(m *machine) bool { return m.labels["foreign"] != "" })
	if len(all) == 0 {
		return ""
	}
	return all[c.w.rand(len(all))].id
}

// queue is the tasks that are not launched yet.
type queue struct {
	w     *world
	mu    sync.Mutex
	tasks map[string]*queued
}

type queued struct {
	rows.Task
	due  time.Time
	host *process
	done bool
}

func (q *queue) add(o rows.Task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tasks[o.Thread] = &queued{Task: o}
}

// wait waits until all tasks are done.
func (q *queue) wait() {
	for q.w.ctx.Err() == nil {
		q.mu.Lock()
		left := false
		for _, t := range q.tasks {
			left = left || !t.done
		}
		q.mu.Unlock()
		if !left {
			return
		}
		sleepIn(q.w.ctx, time.Minute)
	}
}

// provision runs arbe provision, which is killed and restarted, until all tasks are launched.
func (w *world) provision(q *queue, done <-chan struct{}) {
	for {
		p := w.process("provision", w.killAt(120))
		stop := context.AfterFunc(p.ctx, func() {})
		go func() {
			select {
			case <-done:
				p.cancel()
			case <-p.ctx.Done():
			}
		}()
		_ = provision.Provisioner{
			Queue: host{q, p}, Host: host{q, p}, Every: 20 * time.Second, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}.Run(p.ctx)
		stop()
		p.cancel()
		select {
		case <-done:
			return
		default:
			sleepIn(w.ctx, time.Minute)
		}
		if w.ctx.Err() != nil {
			return
		}
	}
}

// host is the queue and the launches of one process.
type host struct {
	*queue
	p *process
}

// of calls f with a task that this process has.
func (h host) of(id string, f func(*queued)) error {
	if h.p.dead() {
		return errKilled
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tasks[id]
	if t == nil || t.host != h.p {
		return rows.ErrLost
	}
	f(t)
	return nil
}

func (h host) Take(_ context.Context, lease time.Duration, limit int) (all []rows.Task, err error) {
	if h.p.dead() {
		return nil, errKilled
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
		if t := h.tasks[id]; !t.done && !t.due.After(time.Now()) && len(all) < limit {
			t.host, t.due = h.p, time.Now().Add(lease)
			t.Attempts++
			all = append(all, t.Task)
		}
	}
	return all, nil
}

func (h host) Renew(_ context.Context, id string, lease time.Duration) error {
	return h.of(id, func(t *queued) { t.due = time.Now().Add(lease) })
}

func (h host) PutBack(_ context.Context, id string, after time.Duration, free bool) error {
	return h.of(id, func(t *queued) {
		if t.host, t.due = nil, time.Now().Add(after); free {
			t.Attempts--
		}
	})
}

func (h host) Done(_ context.Context, id string) error {
	return h.of(id, func(t *queued) { t.done = true })
}

func (h host) Announce(context.Context, rows.Task) error { return nil }

func (h host) task(o rows.Task) launch.Task {
	return launch.Task{
		Thread: o.Thread, Run: o.Run(), Prompt: o.Prompt, Harness: o.Harness,
		Box: sandbox.Options{Ephemeral: o.Sandbox == "", Labels: map[string]string{}},
	}
}

func (h host) Launch(ctx context.Context, o rows.Task) (again bool, err error) {
	w, key := h.w, o.Thread+"/"+o.Run()
	l := w.launcher(h.p, o.Thread)
	l.Rows = w.resolver(h.p)
	l.Continued = func(context.Context, error) bool { return true }
	w.set(func() { w.launching[key] = h.p })
	_, err = l.Launch(ctx, h.task(o))
	w.set(func() { delete(w.launching, key) })
	w.note("task %s: %v", o.Thread, err)
	err = waits(err)
	return err != nil, err
}

func (h host) Refuse(ctx context.Context, o rows.Task, cause error) error {
	err := h.w.launcher(h.p, o.Thread).Refuse(ctx, h.task(o), cause)
	if errors.Is(err, launch.ErrLaunched) {
		return nil
	}
	return waits(err)
}

func waits(err error) error {
	var busy *launch.BusyError
	switch {
	case errors.Is(err, launch.ErrLaunched):
		return nil
	case errors.As(err, &busy):
		return fmt.Errorf("%w: %w", provision.ErrBusy, err)
	}
	return err
}
