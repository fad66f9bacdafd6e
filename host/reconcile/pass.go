package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread/client"
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
	server  client.Health
	views   map[string]*view
	reading slots
	memory  *memory // of a Loop; nil for none

	mu  sync.Mutex
	met map[sandbox.Ref]bool // boxes that are gone, whose threads and rows are settled
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
	p := &pass{r: r, views: map[string]*view{}, reading: make(slots, atOnce), met: map[sandbox.Ref]bool{}}
	cl, err := r.Client("_health")
	if err != nil {
		return nil, err
	}
	if p.server, err = cl.Health(ctx); err != nil {
		return nil, err
	}
	for name, provider := range r.Providers {
		p.views[name] = newView(name, provider, p.server.Installation)
	}
	return p, nil
}

// Provider is the reconciler's access to a provider of boxes.
type Provider = reap.Provider

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

// ask runs one query of the provider with a time limit. It returns reap.ErrDown if the provider is down.
func (v *view) ask(ctx context.Context, question func(ctx context.Context) error) error {
	if err := v.calls.acquire(ctx); err != nil {
		return err
	}
	defer v.calls.release()
	v.mu.Lock()
	down := v.failures >= maxFailures
	v.mu.Unlock()
	if down {
		return reap.ErrDown
	}
	limited, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %v", callTimeout))
	defer cancel()
	err := question(limited)
	if ctx.Err() == nil {
		v.mu.Lock()
		if v.failures++; err == nil || errors.Is(err, sandbox.ErrGone) || errors.Is(err, sandbox.ErrForeign) ||
			errors.Is(err, sandbox.ErrFrozen) {
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
	b, is := reap.Find(boxes, id)
	return b, is, err
}
