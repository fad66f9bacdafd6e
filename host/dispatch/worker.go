package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// worker works on one thread until nothing is open there.
type worker struct {
	*Host
	id    string
	board *board
	grew  chan struct{} // has one element where the thread has grown since the worker has read it
	leave chan struct{} // closed where another thread needs the place of this worker, which is idle

	held    map[string]*reaction // of this host
	ended   chan *reaction
	later   map[string]time.Time // when reactions that this host has released are taken again
	starved bool                 // a reaction waits for a slot
	slot    bool                 // which the worker has got
	upto    string               // the offset that was settled last; "" for none
	absent  bool                 // nobody answers on the thread
	failing bool
	unread  bool // for the rows can't be read
}

// wake has the worker look at its thread again.
func (w *worker) wake() {
	select {
	case w.grew <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	var reacting sync.WaitGroup
	defer reacting.Wait()
	for {
		due, err := w.pass(ctx, &reacting)
		if w.slot {
			w.slot = false
			<-w.slots
		}
		if ctx.Err() != nil {
			return
		}
		if w.report(err); err != nil {
			due = time.Now().Add(retryAfter)
		}
		if !due.IsZero() || len(w.held) > 0 || w.starved {
			w.wait(ctx, due)
		} else if !w.rest(ctx) {
			return
		}
	}
}

// wait waits until there may be something to do: at due, unless that is zero, or earlier.
func (w *worker) wait(ctx context.Context, due time.Time) {
	var timer <-chan time.Time
	if !due.IsZero() {
		timer = time.After(time.Until(due))
	}
	var slot chan<- struct{}
	if w.starved {
		slot = w.slots
	}
	select {
	case <-ctx.Done():
	case <-w.grew:
	case <-timer:
	case slot <- struct{}{}:
		w.slot = true
	case r := <-w.ended:
		delete(w.held, r.id)
		w.later[r.id] = time.Now().Add(retryAfter)
	}
}

// report logs that a thread can't be worked on, and that it can be again. Where the rows of no thread can be read, that
// is logged once.
func (w *worker) report(err error) {
	unread := rows.IsUnserved(err)
	switch {
	case unread:
		w.lost(err)
	case err == nil && w.unread: // a worker that has failed begins with the rows
		w.found()
	case err != nil && (!w.failing || w.unread):
		w.Log.Warn("a thread can't be worked on, and is tried again", "thread", w.id, "error", err)
	case err == nil && w.failing:
		w.Log.Info("a thread is worked on again", "thread", w.id)
	}
	w.failing, w.unread = err != nil, unread
}

// lost notes that the rows of no thread can be read.
func (h *Host) lost(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.unread {
		h.Log.Warn("rows not read: threads wait, and are tried again", "error", err)
	}
	h.unread = true
}

// found notes that the rows of a thread were read.
func (h *Host) found() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unread {
		h.Log.Info("rows read again")
	}
	h.unread = false
}

// absentFor is how often a thread on which nobody answers is looked at while it grows.
const absentFor = 5 * time.Second

// rest waits for the thread to grow. It returns false once the worker is to end: the thread is quiet, another one needs
// the place, or no more threads come.
func (w *worker) rest(ctx context.Context) bool {
	w.mu.Lock()
	w.idle[w] = true
	wanted := len(w.grown) > 0
	w.mu.Unlock()
	if w.upto == "" {
		w.settle(ctx)
	}
	grew, wait := w.grew, linger
	if w.absent {
		grew, wait = nil, absentFor // what grows meanwhile is seen behind it
	}
	if !wanted {
		select {
		case <-ctx.Done():
			return false
		case <-grew:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.busy()
			return true
		case <-time.After(wait):
		case <-w.leave:
		case <-w.closing:
		}
	}
	w.settle(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.grew) > 0 {
		<-w.grew
		w.busy()
		return true
	}
	delete(w.idle, w)
	delete(w.workers, w.id)
	return false
}

// settle notes that nothing is open: when the worker rests for the first time, and at its end. Each time would be
// often, on a thread that grows all the time. No reaction is held: nobody else uses the board.
func (w *worker) settle(ctx context.Context) {
	if w.board == nil || w.Settled == nil || w.upto == w.board.next {
		return
	}
	quiet := false
	w.board.see(func(s *State) { quiet = s.quiet() })
	if quiet {
		w.upto = w.board.next
		w.Settled(ctx, w.id, w.upto)
	}
}

// busy ends the worker's rest. The caller holds mu.
func (w *worker) busy() {
	delete(w.idle, w)
	w.leave = make(chan struct{})
}

// pass does what is open on the thread, and returns when there may be more without a new entry: zero for never.
func (w *worker) pass(ctx context.Context, reacting *sync.WaitGroup) (due time.Time, err error) {
	w.starved, w.absent = false, false
	if w.board == nil {
		room, since, ok, err := w.Room(ctx, w.id)
		if err != nil || !ok {
			w.absent = err == nil
			return due, err
		}
		w.board = newBoard(w.Threads(w.id), w.id, since, room)
	}
	defer func() {
		if err != nil { // its state may be another than the thread's
			w.board = nil
		}
	}()
	if err := w.board.sync(ctx); errors.Is(err, ErrGone) {
		w.board, w.absent = nil, true
		return due, nil
	} else if err != nil {
		return due, err
	}
	quiet := true
	w.board.see(func(s *State) { quiet = s.quiet() })
	w.stopCancelled()
	if quiet {
		w.resume(ctx, w.id, nil, Room{}, time.Time{})
		return due, nil
	}
	return w.work(ctx, reacting)
}

// work does what is open on a thread that has been read.
func (w *worker) work(ctx context.Context, reacting *sync.WaitGroup) (due time.Time, err error) {
	room, _, ok, err := w.Room(ctx, w.id)
	if err != nil {
		return due, err
	}
	if !ok {
		w.board, w.absent = nil, true
		return due, nil
	}
	if err := w.decide(ctx, room); err != nil {
		return due, err
	}
	work, now := w.look()
	maps.DeleteFunc(w.later, func(_ string, at time.Time) bool { return time.Until(at) <= 0 })
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
	if wait := w.resume(ctx, w.id, work.Resume, room, now); wait > 0 {
		work.later(now.Add(wait))
	}
	if !work.Due.IsZero() {
		due = time.Now().Add(work.Due.Sub(now))
	}
	return due, nil
}

// look returns what is open now, by the server's time.
func (w *worker) look() (work Work, now time.Time) {
	now = w.board.time()
	w.board.see(func(s *State) { work = s.Open(now) })
	return work, now
}

// stopCancelled ends what the reactions do that were cancelled. It needs no rows, which may be away.
func (w *worker) stopCancelled() {
	w.board.see(func(s *State) {
		for id, r := range w.held {
			if j := s.Reaction(id); j != nil && j.cancelled {
				r.stop()
			}
		}
	})
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
		if last == e.ID {
			return fmt.Errorf("%s was appended, and is not read", e.ID)
		}
		if _, err := w.board.append(ctx, e); err != nil {
			return err
		}
		last = e.ID
	}
}
