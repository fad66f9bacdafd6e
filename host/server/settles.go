package server

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/thread"
)

// Bounds of the threads that reads queue to be settled.
const (
	mostSettles  = 256             // that wait; a read of another thread queues nothing
	settleWidth  = 4               // at the same time
	settleRest   = 5 * time.Second // from the end of a pass over a thread until a read queues it again
	settleWithin = 2 * time.Minute // for one pass
	mostKnown    = 4096            // threads of which the end of a pass is kept; more where they rest still
)

// settles are the threads that wait to be settled because somebody has read them. A thread waits once, and not for
// settleRest after its last pass. Without a SettleLoop those that fit wait for ever.
type settles struct {
	once  sync.Once
	queue chan string

	mu    sync.Mutex           // guards known
	known map[string]time.Time // the end of the last pass; zero: it waits, or is being settled
}

func (q *settles) init() {
	q.once.Do(func() { q.queue, q.known = make(chan string, mostSettles), map[string]time.Time{} })
}

// add queues a thread, if it is not there and there is room.
func (q *settles) add(id string, now time.Time) {
	q.init()
	q.mu.Lock()
	defer q.mu.Unlock()
	if ended, is := q.known[id]; is && (ended.IsZero() || now.Sub(ended) < settleRest) {
		return
	}
	select {
	case q.queue <- id:
		q.known[id] = time.Time{}
	default:
	}
}

// done notes the end of a pass, and forgets those that have rested.
func (q *settles) done(id string, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.known[id] = now
	if len(q.known) > mostKnown {
		maps.DeleteFunc(q.known, func(_ string, ended time.Time) bool {
			return !ended.IsZero() && now.Sub(ended) >= settleRest
		})
	}
}

// SettleLoop settles the threads that were read, until ctx is done. It returns nil then.
func (s *Server) SettleLoop(ctx context.Context) error {
	s.settles.init()
	var g errgroup.Group
	for range settleWidth {
		g.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case id := <-s.settles.queue:
					s.settleRead(ctx, id)
				}
			}
		})
	}
	return g.Wait()
}

// settleRead settles one thread that was read.
func (s *Server) settleRead(ctx context.Context, id string) {
	limited, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	if _, err := s.Settle(limited, id); err != nil && ctx.Err() == nil {
		s.Logger.Warn("reconcile of a thread that was read", "thread", id, "error", err)
	}
	s.settles.done(id, time.Now())
}

// Bounds of ending a task that waits.
const (
	mostCancel    = 128 << 10        // bytes of a request to cancel
	withdrawUntil = 30 * time.Second // for one task
)

// settleCancelled settles a thread on which one of the entries asks for the end of a run while none is open. A
// delegated task that waits to be launched has no runner that would see it. What fails is left to its provisioner.
func (s *Server) settleCancelled(ctx context.Context, id string, entries []thread.Entry) {
	if s.Settle == nil || s.Rows == nil || s.Index == nil || !slices.ContainsFunc(entries, isCancel) {
		return
	}
	if v, err := s.Index.Summary(ctx, id); err != nil || v.Status == thread.StatusRunning {
		return
	}
	if err := s.settleNow(ctx, id); err != nil {
		s.Logger.Warn("task that waits not ended: its provisioner does it", "thread", id, "error", err)
	}
}

// settleNow settles a thread that a request waits for.
func (s *Server) settleNow(ctx context.Context, id string) error {
	limited, cancel := context.WithTimeout(ctx, withdrawUntil)
	defer cancel()
	_, err := s.Settle(limited, id)
	return err
}

// isCancel reports whether an entry asks for the end of a run.
func isCancel(e thread.Entry) bool {
	var p thread.Cancel
	return len(e.Payload) <= mostCancel && bytes.Contains(e.Payload, []byte(thread.TypeCancel)) &&
		json.Unmarshal(e.Payload, &p) == nil && p.Type == thread.TypeCancel
}
