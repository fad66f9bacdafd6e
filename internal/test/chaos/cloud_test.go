package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// cloud is a provider in memory. What its boxes lose when they are deleted is checked.
type cloud struct {
	w     *world
	mu    sync.Mutex
	next  int
	boxes map[string]*machine
}

// machine is one box.
type machine struct {
	id      string
	labels  map[string]string
	created time.Time

	mu  sync.Mutex
	now condition
}

// condition is the changing state of a machine.
type condition struct {
	state    string
	runners  []*agent
	commands []*command
	unsaved  bool            // an agent has left work that is nowhere else
	ended    time.Time       // of its newest run
	touched  time.Time       // when somebody last opened it, or ran something in it
	busy     int             // requests that run something in it now
	used     map[string]bool // the threads that had a runner or a command in it
}

func (m *machine) look() condition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *machine) change(f func(*condition)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.now)
}

// live returns what works in the machine; "" for nothing. What has its end on its thread is over, also where its
// process does not know it yet.
func (c condition) live() string {
	for _, a := range c.runners {
		if a.alive() && !a.w.posted(a.thread, a.run) {
			return "run " + a.run + " of " + a.thread
		}
	}
	for _, x := range c.commands {
		if x.alive() && !x.w.posted(x.thread, x.id) {
			return "command " + x.id + " of " + x.thread
		}
	}
	return ""
}

// view is the cloud as one process reaches it.
type view struct {
	*cloud
	p *process
}

var (
	errKilled = errors.New("the process was killed")
	errCloud  = errors.New("the provider fails")
)

// call is one call of the provider: it may fail before or after it was carried out.
func (v view) call(ctx context.Context, do func() error) error {
	f := v.w.fault()
	if dies, applied := v.p.step(); dies {
		if applied {
			_ = do()
		}
		return errKilled
	}
	if v.p.dead() {
		return errKilled
	}
	switch f {
	case lost, refused, portal:
		return errCloud
	case unheard:
		_ = do()
		return errCloud
	case hanging:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Second): // its client gives up
			return errCloud
		}
	case slow:
		time.Sleep(20 * time.Second)
	}
	if v.p.dead() {
		return errKilled
	}
	if v.w.lieAbout("") == silent {
		return errCloud
	}
	return do()
}

func (v view) Name() string { return "cloud" }

func (v view) Create(ctx context.Context, o sandbox.Options) (box sandbox.Sandbox, err error) {
	err = v.call(ctx, func() error {
		time.Sleep(time.Duration(v.w.rand(int(3 * time.Minute))))
		v.mu.Lock()
		defer v.mu.Unlock()
		v.next++
		m := &machine{
			id:      fmt.Sprintf("box-%d", v.next),
			labels:  maps.Clone(o.Labels),
			created: time.Now(),
			now:     condition{state: "started"},
		}
		if o.Ephemeral {
			m.labels[sandbox.LabelEphemeral] = "true"
		}
		v.boxes[m.id] = m
		box = &room{view: v, m: m}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return box, nil
}

func (v view) find(id string) *machine {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.boxes[id]
}

// sight is the provider's answer about a box.
type sight struct {
	there, listed bool
	state         string
	health        sandbox.Health
}

// sight returns the provider's answer about a box now.
func (v view) sight(id string) (s sight) {
	m := v.find(id)
	if m == nil {
		return s
	}
	s = sight{true, true, m.look().state, sandbox.Live}
	switch v.w.lieAbout(id) {
	case notFound:
		return sight{}
	case faulty:
		s.state = "error"
	case unlisted:
		s.listed = false
	}
	switch s.state {
	case "started":
	case "error":
		s.health = sandbox.Gone
	default:
		s.health = sandbox.Asleep
	}
	return s
}

func (v view) Open(ctx context.Context, id string) (box sandbox.Sandbox, err error) {
	err = v.call(ctx, func() error {
		if s := v.sight(id); !s.there || s.health == sandbox.Gone {
			return sandbox.ErrGone
		}
		m := v.find(id)
		m.change(func(c *condition) { c.state, c.touched = "started", time.Now() })
		box = &room{view: v, m: m}
		return nil
	})
	return box, err
}

func (v view) Probe(ctx context.Context, id string) (h sandbox.Health, why string, err error) {
	err = v.call(ctx, func() error {
		if h, why = sandbox.Gone, "not found"; v.w.lies() {
			return nil
		}
		if s := v.sight(id); s.there {
			h, why = s.health, s.state
		}
		return nil
	})
	return h, why, err
}

func (v view) Runs(ctx context.Context, id string, p sandbox.Process) (runs bool, err error) {
	err = v.call(ctx, func() error {
		s := v.sight(id)
		if !s.there || s.health == sandbox.Gone {
			return sandbox.ErrGone
		}
		if s.state != "started" {
			return nil
		}
		now := v.find(id).look()
		for _, a := range now.runners {
			mine := p.PID == a.pid || p.PID == 0 && (p.Run == "" || p.Run == a.run)
			runs = runs || a.alive() && mine
		}
		for _, x := range now.commands {
			runs = runs || x.alive() && (p.PID == x.pid || p.PID == 0 && p.Run == "")
		}
		return nil
	})
	return runs, err
}

func (v view) List(ctx context.Context, labels map[string]string) (all []sandbox.Box, err error) {
	err = v.call(ctx, func() error {
		for _, m := range v.machines() {
			s := v.sight(m.id)
			fits := s.listed && !v.w.lies()
			for k, want := range labels {
				fits = fits && m.labels[k] == want
			}
			if fits {
				all = append(all, sandbox.Box{
					Ref: sandbox.Ref{Provider: "cloud", ID: m.id}, Labels: m.labels, State: s.state, Health: s.health,
					Created: m.created,
				})
			}
		}
		return nil
	})
	return all, err
}

// machines returns the machines in the order of their ids.
func (c *cloud) machines() (all []*machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(c.boxes)) {
		all = append(all, c.boxes[id])
	}
	return all
}

// Destroy deletes a box, also while the provider lies about it. What may not be deleted is checked.
func (v view) Destroy(ctx context.Context, id string) error {
	return v.call(ctx, func() error {
		m := v.find(id)
		if m == nil {
			return nil
		}
		now := m.look()
		if what := now.live(); what != "" && !v.p.force {
			v.w.broken("%s deleted %s under the live %s", v.p.name, id, what)
		}
		old := time.Since(now.ended) >= reapAfter
		if now.unsaved && now.state != "error" && !v.p.force && (!old || v.p.hand) {
			v.w.broken("%s deleted %s with unsaved work %v after its run", v.p.name, id, time.Since(now.ended))
		}
		if m.labels["foreign"] != "" {
			v.w.broken("%s deleted %s of another installation", v.p.name, id)
		}
		ref := sandbox.Ref{Provider: "cloud", ID: id}
		if !v.p.force {
			v.w.checkReleased(v.p.name, ref, now)
		}
		v.w.note("%s deletes %s", v.p.name, id)
		v.vanish(id)
		return nil
	})
}

// vanish takes a box away, with what runs in it.
func (c *cloud) vanish(id string) {
	c.mu.Lock()
	m := c.boxes[id]
	delete(c.boxes, id)
	c.mu.Unlock()
	if m != nil {
		m.stop()
	}
}

// stop ends what runs in the machine.
func (m *machine) stop() {
	now := m.look()
	for _, a := range now.runners {
		a.kill()
	}
	for _, x := range now.commands {
		x.kill()
	}
}

// autostop stops machines in which nothing has run for an hour, until the schedule ends.
func (c *cloud) autostop() {
	for c.w.ctx.Err() == nil {
		sleepIn(c.w.ctx, 30*time.Minute)
		for _, m := range c.machines() {
			m.change(func(now *condition) {
				idle := time.Since(now.ended) > time.Hour && time.Since(m.created) > time.Hour &&
					time.Since(now.touched) > time.Hour && now.busy == 0 && now.live() == ""
				if idle && now.state == "started" {
					now.state = "stopped"
				}
			})
		}
	}
}

// room is an opened box.
type room struct {
	view
	m *machine
}

func (r *room) Ref() sandbox.Ref { return sandbox.Ref{Provider: "cloud", ID: r.m.id} }
func (r *room) WorkDir() string  { return "/work" }
func (r *room) Home() string     { return "/home" }

func (r *room) there() error {
	if r.find(r.m.id) == nil {
		return sandbox.ErrGone
	}
	return nil
}

// use records that something runs in the box, which starts it, until done is called.
func (r *room) use() (done func()) {
	r.m.change(func(c *condition) {
		if c.busy++; c.state == "stopped" {
			c.state = "started"
		}
	})
	return func() {
		r.m.change(func(c *condition) { c.busy, c.touched = c.busy-1, time.Now() })
	}
}

// Exec answers the launch's own look; other commands take their time.
func (r *room) Exec(ctx context.Context, c sandbox.Command) (res sandbox.Result, err error) {
	err = r.call(ctx, func() error {
		if err := r.there(); err != nil {
			return err
		}
		defer r.use()()
		switch {
		case strings.Contains(c.Argv[2], "uname -m"):
			res.Stdout = []byte("x86_64\n" + runnerSum + "\n/usr/bin/pi\n")
		case c.Argv[len(c.Argv)-1] != "reach":
			time.Sleep(time.Duration(r.w.rand(int(40 * time.Minute))))
		case r.w.partitioned():
			res.ExitCode, res.Stderr = 69, []byte("can't use the thread server")
		}
		return nil
	})
	return res, err
}

// Detach starts the runner, or the supervisor of a command.
func (r *room) Detach(ctx context.Context, c sandbox.Command, _ string) (p sandbox.Process, err error) {
	err = r.call(ctx, func() error {
		if err := r.there(); err != nil {
			return err
		}
		defer r.use()()
		id := c.Env["ARBE_THREAD_ID"]
		r.m.change(func(now *condition) {
			if now.used == nil {
				now.used = map[string]bool{}
			}
			now.used[id] = true
		})
		if at := slices.Index(c.Argv, "exec"); at >= 0 {
			r.w.startCommand(r.m, id, c.Argv[at+2])
			return nil
		}
		for _, a := range r.m.look().runners {
			if a.alive() && a.thread == id {
				r.w.broken("a second runner of %s in %s", id, r.m.id)
			}
		}
		a := r.w.startAgent(r.m, id, c.Env["ARBE_RUN_ID"])
		p = sandbox.Process{PID: a.pid, Start: "9"}
		return nil
	})
	return p, err
}

func (r *room) Upload(context.Context, ...sandbox.File) error     { return nil }
func (r *room) Download(context.Context, string, io.Writer) error { return nil }

// agent is a run in a box: it posts like a runner, and ends well, badly, or not at all.
type agent struct {
	w           *world
	thread, run string
	pid         int
	ctx         context.Context
	kill        context.CancelFunc
	mu          sync.Mutex
	running     bool
}

func (a *agent) alive() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.running
}

func (w *world) startAgent(m *machine, id, run string) *agent {
	a := &agent{w: w, thread: id, run: run, pid: w.pid(), running: true}
	a.ctx, a.kill = context.WithCancel(w.ctx)
	m.change(func(c *condition) { c.runners = append(c.runners, a) })
	length, verdict := time.Duration(
		w.rand(int(50*time.Minute)),
	), [...]string{"completed", "completed", "failed", "cancelled"}[w.rand(4)]
	dies := w.rand(6) == 0
	w.mu.Lock()
	w.alive[id+"/"+run] = a
	w.mu.Unlock()
	w.wg.Go(func() {
		defer func() {
			m.change(func(c *condition) { c.ended = time.Now() })
			a.mu.Lock()
			a.running = false
			a.mu.Unlock()
			a.kill()
		}()
		client := w.client(nil, id)
		sig := func(typ string) thread.Signal { return thread.Signal{Type: typ, RunID: run, Harness: "pi"} }
		post := func(id string, payload any) {
			e := thread.Entry{ID: run + "." + id, TS: thread.Stamp(time.Now()), Payload: thread.Marshal(payload)}
			_ = client.Heartbeat(a.ctx, e) // as a runner's heartbeats: one try
		}
		end := time.After(length)
		post("started", thread.Started{Signal: sig(thread.TypeStarted), PID: a.pid, StartTicks: 9, Resume: "none"})
		for n := 0; ; n++ {
			select {
			case <-a.ctx.Done():
				return
			case <-end:
				if dies {
					return
				}
				m.change(func(c *condition) { c.unsaved = m.labels[sandbox.LabelTree] != "" })
				// The end is tried for as long as it takes, like a runner's.
				for a.ctx.Err() == nil {
					e := thread.Entry{
						ID:      run + ".end.0",
						TS:      thread.Stamp(time.Now()),
						Payload: thread.Marshal(thread.StatusChanged{Signal: sig(thread.TypeStatus), Status: verdict}),
					}
					if _, err := client.Append(a.ctx, []thread.Entry{e}); err == nil {
						return
					}
					sleepIn(a.ctx, 30*time.Second)
				}
				return
			case <-time.After(15 * time.Second):
				if w.asked(id, thread.TypeCancel, run) {
					verdict, dies, end = "cancelled", false, time.After(0)
				}
				post(fmt.Sprintf("beat.%d", n), thread.Heartbeat{Signal: sig(thread.TypeHeartbeat), Beat: int64(n)})
			}
		}
	})
	return a
}

func sleepIn(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
