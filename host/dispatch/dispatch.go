package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/thread"
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

	Tools     []Tool
	Reactions int // at the same time, at the most
	Log       *slog.Logger

	slots   chan struct{}
	mu      sync.Mutex
	workers map[string]*worker
	running sync.WaitGroup
}

// worker works on one thread until nothing is open there.
type worker struct {
	*Host
	id    string
	board *board
	grew  chan struct{}        // has one element where the thread has grown since the worker has read it
	held  map[string]*reaction // of this host
	ended chan *reaction
	later map[string]time.Time // when reactions that this host has released are taken again
}

// Run works on each thread whose id comes, until ctx is done or the channel is closed and no work is left. Then it
// releases its reactions, which other hosts take over at once.
func (h *Host) Run(ctx context.Context, grew <-chan string) {
	h.slots, h.workers = make(chan struct{}, h.Reactions), map[string]*worker{}
	defer h.running.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case id, ok := <-grew:
			if !ok {
				return
			}
			h.wake(ctx, id)
		}
	}
}

// wake lets a worker look at a thread.
func (h *Host) wake(ctx context.Context, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.workers[id]
	if w == nil {
		w = &worker{
			Host: h, id: id, grew: make(chan struct{}, 1), held: map[string]*reaction{},
			ended: make(chan *reaction, 16), later: map[string]time.Time{},
		}
		h.workers[id] = w
		h.running.Go(func() { w.run(ctx) })
	}
	select {
	case w.grew <- struct{}{}:
	default:
	}
}

// rest removes the worker, unless its thread has grown meanwhile.
func (w *worker) rest() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.grew) > 0 {
		return false
	}
	delete(w.workers, w.id)
	return true
}

func (w *worker) run(ctx context.Context) {
	var reacting sync.WaitGroup
	defer reacting.Wait()
	for {
		due, err := w.pass(ctx, &reacting)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.Log.Warn("a thread can't be worked on, and is tried again", "thread", w.id, "error", err)
			w.board, due = nil, time.Now().Add(retryAfter)
		}
		if due.IsZero() && len(w.held) == 0 && w.rest() {
			return
		}
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.grew:
		case <-timer:
		case r := <-w.ended:
			delete(w.held, r.id)
			w.later[r.id] = time.Now().Add(retryAfter)
		}
	}
}

// pass does what is open on the thread, and returns when there may be more without a new entry: zero for never.
func (w *worker) pass(ctx context.Context, reacting *sync.WaitGroup) (due time.Time, err error) {
	room, since, ok, err := w.Room(ctx, w.id)
	if err != nil || !ok {
		return due, err
	}
	if w.board == nil {
		w.board = newBoard(w.Threads(w.id), w.id, since)
	}
	if err := w.board.sync(ctx); err != nil {
		return due, err
	}
	if err := w.decide(ctx, room); err != nil {
		return due, err
	}
	work, now := w.look()
	for _, j := range work.Take {
		if w.held[j.ID] != nil {
			continue // its signs of life are late
		}
		if wait := time.Until(w.later[j.ID]); wait > 0 {
			work.later(now.Add(wait))
		} else if err := w.take(ctx, j, reacting); err != nil {
			return due, err
		}
	}
	for _, st := range work.Start {
		if err := w.start(ctx, room, st, reacting); err != nil {
			return due, err
		}
	}
	if !work.Due.IsZero() {
		due = time.Now().Add(work.Due.Sub(now))
	}
	return due, nil
}

// look returns what is open now, by the server's time, and ends what the reactions do that were cancelled.
func (w *worker) look() (work Work, now time.Time) {
	now = w.board.time()
	w.board.see(func(s *State) {
		work = s.Open(now)
		for id, r := range w.held {
			if j := s.Reaction(id); j != nil && j.cancelled {
				r.stop()
			}
		}
	})
	return work, now
}

// decide decides the triggers without a decision.
func (w *worker) decide(ctx context.Context, room Room) error {
	for last := ""; ; {
		var e thread.Entry
		w.board.see(func(s *State) {
			if open := s.undecided; len(open) > 0 {
				e = entry(thread.DecidedID(open[0].ID), "", s.Select(open[0], room))
			}
		})
		if e.ID == "" {
			return nil
		}
		if ok, err := w.board.append(ctx, e); err != nil {
			return err
		} else if !ok && last == e.ID {
			return fmt.Errorf("decide on %s: %w", e.ID, ErrTaken)
		}
		last = e.ID
	}
}
