package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/model"
)

// The clocks of a reaction.
const (
	lease      = 20 * time.Second // a holder that is silent for so long has lost its reaction
	aliveEvery = 5 * time.Second
	retryAfter = 5 * time.Second // of a thread that could not be read
)

// Host dispatches. Any number of hosts may work on the same threads. Set all fields before Run.
type Host struct {
	Instance string // random

	// Threads returns the thread with an id.
	Threads func(id string) Thread
	// Room returns the rows of a thread. ok is false for a thread without a row, and where its house does not dispatch.
	Room func(ctx context.Context, id string) (r Room, since time.Time, ok bool, err error)
	// Model returns a provider's API with the key of a thread's house. An *model.Error, as where the house has no key,
	// ends the reaction; another error releases it, for a later try.
	Model func(ctx context.Context, id, provider string) (model.Model, error)
	// Reserve sets aside what a request to a model costs at the most, before it is made; nil for no limits of money. An
	// *Unpaid ends the reaction; another error releases it, for a later try. settle gives back what was not used, once
	// that is known; what nobody settles counts as spent.
	Reserve func(ctx context.Context, s Spend) (settle func(ctx context.Context, micros int64), err error)
	// Settled is called where nothing is open on a thread up to an offset; nil for nothing. A thread that has not grown
	// since needs no work.
	Settled func(ctx context.Context, id, upto string)
	// Resume launches a run on a thread, or continues its launch; nil where this host launches none. It returns nil,
	// too, for a run that was launched before, or that can't be launched and whose end it has posted. It is called
	// again after an error, which is temporary but for the last try: then it posts the end. ErrBusy and a *Held do not
	// count.
	Resume func(ctx context.Context, id string, r Resume) error

	Tools     []Tool
	Reactions int // at the same time, at the most
	Launches  int // of runs, at the same time, at the most. Default 1
	Log       *slog.Logger

	slots   chan struct{}
	places  chan struct{} // of launches
	closing chan struct{} // closed where no more threads come
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	workers map[string]*worker
	resumes map[string]*resuming // by thread
	idle    map[*worker]bool     // of them, those that wait for their threads to grow
	grown   []string             // threads that have grown, and that wait for a worker
	waits   map[string]bool      // which these are
	unread  bool                 // the rows of no thread can be read
}

// Bounds of the workers. One whose thread is quiet keeps what it has read for a while, unless another thread waits.
const (
	mostWorkers = 256
	linger      = 30 * time.Second
)

// Run works on each thread whose id comes, until ctx is done or the channel is closed and no work is left. Then it
// releases its reactions, which other hosts take over at once.
func (h *Host) Run(ctx context.Context, grew <-chan string) {
	h.slots, h.closing = make(chan struct{}, h.Reactions), make(chan struct{})
	h.places, h.resumes = make(chan struct{}, max(1, h.Launches)), map[string]*resuming{}
	h.workers, h.idle, h.waits = map[string]*worker{}, map[*worker]bool{}, map[string]bool{}
	defer h.running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case id, ok := <-grew:
			if !ok {
				close(h.closing)
				return
			}
			h.wake(ctx, id)
		}
	}
}

// wake has a worker look at a thread: now, or once there is room for one more.
func (h *Host) wake(ctx context.Context, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch w := h.workers[id]; {
	case w != nil:
		w.wake()
	case len(h.workers) < mostWorkers:
		h.begin(ctx, id)
	case !h.waits[id]:
		h.grown, h.waits[id] = append(h.grown, id), true
		for w := range h.idle {
			delete(h.idle, w)
			close(w.leave)
			break
		}
	}
}

// begin starts a worker. The caller holds mu.
func (h *Host) begin(ctx context.Context, id string) {
	w := &worker{
		Host: h, id: id, grew: make(chan struct{}, 1), leave: make(chan struct{}), held: map[string]*reaction{},
		ended: make(chan *reaction, 16), later: map[string]time.Time{},
	}
	w.wake()
	h.workers[id] = w
	h.running.Go(func() {
		w.run(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.idle, w); h.workers[id] == w {
			delete(h.workers, id)
		}
		for len(h.grown) > 0 && len(h.workers) < mostWorkers && ctx.Err() == nil {
			next := h.grown[0]
			h.grown = h.grown[1:]
			delete(h.waits, next)
			if w := h.workers[next]; w != nil {
				w.wake()
				continue
			}
			h.begin(ctx, next)
		}
	})
}
