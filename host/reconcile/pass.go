package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a pass.
const (
	atOnce      = 8                // reads of threads, and calls of one provider, at the same time
	callTimeout = 30 * time.Second // of one question to a provider
	maxFailures = 3                // failures in a row that exclude a provider from the rest of the pass
)

// pass settles any number of threads. It queries the server's health and each provider's list once.
type pass struct {
	r       *Reconciler
	server  thread.Health
	views   map[string]*view
	reading slots
	memory  *memory // of a Loop; nil for none
}

// slots bounds concurrent work.
type slots chan struct{}

func (s slots) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) release() { <-s }

// begin begins a pass. Without the server's health no run is judged: the silence may be the server's.
func (r *Reconciler) begin(ctx context.Context) (*pass, error) {
	p := &pass{r: r, views: map[string]*view{}, reading: make(slots, atOnce)}
	client, err := r.Client("_health")
	if err != nil {
		return nil, err
	}
	if p.server, err = client.Health(ctx); err != nil {
		return nil, err
	}
	for name, provider := range r.Providers {
		p.views[name] = newView(name, provider, p.server.Installation)
	}
	return p, nil
}

// errProviderDown is returned without a query for a provider that has failed maxFailures times in a row.
var errProviderDown = errors.New("the provider does not answer")

// Provider is what the reconciler asks of a provider of boxes. sandbox.Local and sandbox.Daytona are such.
type Provider interface {
	prober
	inventory
	// Open returns the box with the id, which must be live; sandbox.ErrGone if there is no such box.
	Open(ctx context.Context, id string) (sandbox.Sandbox, error)
}

// prober is what a provider can report of a box without starting the box or keeping it awake.
type prober interface {
	// Probe returns the state of the box with the id, and why in the provider's words. Only the provider's own answer
	// about this box makes it Gone.
	Probe(ctx context.Context, id string) (h sandbox.Health, why string, err error)
	// Runs reports whether the process is alive in the box; with PID 0, whether the runner of the process's Run is, or,
	// without a Run, any runner.
	Runs(ctx context.Context, id string, p sandbox.Process) (bool, error)
}

// inventory is the boxes that a provider has.
type inventory interface {
	// List returns the boxes that have all these labels.
	List(ctx context.Context, labels map[string]string) ([]sandbox.Box, error)
	// Destroy releases the box with the id. A box that is gone already is no error.
	Destroy(ctx context.Context, id string) error
}

// view is one provider during a pass.
type view struct {
	Provider
	name         string
	installation string
	calls        slots

	mu       sync.Mutex
	failures int

	asked chan struct{} // one token: the goroutine that takes it lists the boxes
	known chan struct{} // closed when the boxes are listed
	boxes []sandbox.Box
	err   error
}

func newView(name string, p Provider, installation string) *view {
	v := &view{
		Provider: p, name: name, installation: installation,
		calls: make(slots, atOnce), asked: make(chan struct{}, 1), known: make(chan struct{}),
	}
	v.asked <- struct{}{}
	return v
}

// ask runs one query of the provider with a time limit. It returns errProviderDown if the provider is down.
func (v *view) ask(ctx context.Context, question func(ctx context.Context) error) error {
	if err := v.calls.acquire(ctx); err != nil {
		return err
	}
	defer v.calls.release()
	v.mu.Lock()
	down := v.failures >= maxFailures
	v.mu.Unlock()
	if down {
		return errProviderDown
	}
	limited, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %v", callTimeout))
	defer cancel()
	err := question(limited)
	if ctx.Err() == nil {
		v.mu.Lock()
		if v.failures++; err == nil || errors.Is(err, sandbox.ErrGone) || errors.Is(err, sandbox.ErrForeign) {
			v.failures = 0
		}
		v.mu.Unlock()
	}
	return err
}

// list returns the boxes of this installation, listed once a pass. If that fails the provider is down for the pass.
func (v *view) list(ctx context.Context) ([]sandbox.Box, error) {
	select {
	case <-v.asked:
		defer close(v.known)
	case <-v.known:
		return v.boxes, v.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if v.installation == "" {
		return nil, nil // an older server has no installation id to tell its boxes from others
	}
	v.err = v.ask(ctx, func(ctx context.Context) (err error) {
		v.boxes, err = v.List(ctx, map[string]string{sandbox.LabelInstallation: v.installation})
		return err
	})
	if v.err != nil {
		v.err = fmt.Errorf("list the sandboxes of %s: %w", v.name, v.err)
		v.mu.Lock()
		v.failures = maxFailures
		v.mu.Unlock()
	}
	return v.boxes, v.err
}

// listed returns the box with the id from the list, which may be out of date.
func (v *view) listed(ctx context.Context, id string) (sandbox.Box, bool, error) {
	boxes, err := v.list(ctx)
	for _, b := range boxes {
		if b.Ref.ID == id {
			return b, true, err
		}
	}
	return sandbox.Box{}, false, err
}

// life is the state of the runner in a box.
type life int

const (
	lifeUnknown life = iota
	alive
	dead
)

// runner tries for a run's runner in its box.
func (v *view) runner(ctx context.Context, id string, run thread.Run) (life, error) {
	p := sandbox.Process{Run: run.ID} // the runners of other threads may be in the box, too
	if s := run.Started; s != nil && s.PID > 0 && s.StartTicks > 0 {
		p = sandbox.Process{PID: s.PID, Start: fmt.Sprint(s.StartTicks), Boot: s.BootID}
	}
	is := lifeUnknown
	err := v.ask(ctx, func(ctx context.Context) error {
		runs, err := v.Runs(ctx, id, p)
		if err == nil {
			if is = dead; runs {
				is = alive
			}
		}
		return err
	})
	return is, err
}
