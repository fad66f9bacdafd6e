package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
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

// condition is what changes in a machine.
type condition struct {
	state   string
	runner  *agent
	unsaved bool      // an agent has left work that is nowhere else
	ended   time.Time // of its newest run
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

// live returns the run that works in the machine, or nil.
func (c condition) live() *agent {
	if c.runner == nil || !c.runner.alive() {
		return nil
	}
	return c.runner
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

func (v view) Open(ctx context.Context, id string) (box sandbox.Sandbox, err error) {
	err = v.call(ctx, func() error {
		m := v.find(id)
		if m == nil {
			return sandbox.ErrGone
		}
		m.change(func(c *condition) { c.state = "started" })
		box = &room{view: v, m: m}
		return nil
	})
	return box, err
}

func (v view) Probe(ctx context.Context, id string) (h sandbox.Health, why string, err error) {
	err = v.call(ctx, func() error {
		m := v.find(id)
		switch {
		case m == nil || v.w.lies():
			h, why = sandbox.Gone, "not found"
		case m.look().state == "error":
			h, why = sandbox.Gone, "error"
		default:
			h, why = sandbox.Live, m.look().state
		}
		return nil
	})
	return h, why, err
}

func (v view) Runs(ctx context.Context, id string, p sandbox.Process) (runs bool, err error) {
	err = v.call(ctx, func() error {
		m := v.find(id)
		if m == nil {
			return sandbox.ErrGone
		}
		live := m.look().live()
		runs = live != nil && (p.PID != 0 || p.Run == "" || p.Run == live.run)
		return nil
	})
	return runs, err
}

func (v view) List(ctx context.Context, labels map[string]string) (all []sandbox.Box, err error) {
	err = v.call(ctx, func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		for id, m := range v.boxes {
			fits := !v.w.lies()
			for k, want := range labels {
				fits = fits && m.labels[k] == want
			}
			if fits {
				state := m.look().state
				b := sandbox.Box{
					Ref:     sandbox.Ref{Provider: "cloud", ID: id},
					Labels:  m.labels,
					State:   state,
					Health:  sandbox.Live,
					Created: m.created,
				}
				if state == "error" {
					b.Health = sandbox.Gone
				}
				all = append(all, b)
			}
		}
		return nil
	})
	return all, err
}

func (v view) Destroy(ctx context.Context, id string) error {
	return v.call(ctx, func() error {
		m := v.find(id)
		if m == nil {
			return nil
		}
		now := m.look()
		if a := now.live(); a != nil {
			v.w.broken("%s deleted %s under the live run %s", v.p.name, id, a.run)
		}
		if now.unsaved && now.state != "error" && time.Since(now.ended) < reapAfter {
			v.w.broken("%s deleted %s with unsaved work %v after its run", v.p.name, id, time.Since(now.ended))
		}
		if m.labels["foreign"] != "" {
			v.w.broken("%s deleted %s of another installation", v.p.name, id)
		}
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
	if a := m.look().runner; a != nil {
		a.kill()
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

// Exec answers the launch's own look; other commands take their time.
func (r *room) Exec(ctx context.Context, c sandbox.Command) (res sandbox.Result, err error) {
	err = r.call(ctx, func() error {
		if err := r.there(); err != nil {
			return err
		}
		if strings.Contains(c.Argv[2], "uname -m") {
			res.Stdout = []byte("x86_64\n" + runnerSum + "\n/usr/bin/pi\n")
		} else {
			time.Sleep(time.Duration(r.w.rand(int(40 * time.Minute))))
		}
		return nil
	})
	return res, err
}

// Detach starts the runner.
func (r *room) Detach(ctx context.Context, c sandbox.Command, _ string) (p sandbox.Process, err error) {
	err = r.call(ctx, func() error {
		if err := r.there(); err != nil {
			return err
		}
		if r.m.look().live() != nil {
			r.w.broken("a second runner in %s", r.m.id)
		}
		a := r.w.startAgent(r.m, c.Env["ARBE_THREAD_ID"], c.Env["ARBE_RUN_ID"])
		r.m.change(func(c *condition) { c.runner = a })
		p = sandbox.Process{PID: 7, Start: "9"}
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
	a := &agent{w: w, thread: id, run: run, running: true}
	a.ctx, a.kill = context.WithCancel(w.ctx)
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
		post("started", thread.Started{Signal: sig(thread.TypeStarted), PID: 7, StartTicks: 9, Resume: "none"})
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
			case <-time.After(20 * time.Second):
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
