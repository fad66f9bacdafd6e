package answer

import (
	"context"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Times of a feed.
const (
	lookAfter = 5 * time.Second // after a look that failed
	watchWait = 5 * time.Second // after a watch that ended
)

// mostGrown bounds the threads that wait for a Hook's reader.
const mostGrown = 10_000

// Hook receives which threads of a server in this process grow, at once: an index of threads, and with it the list, may
// be some seconds behind. Make it with NewHook.
type Hook struct {
	mu    sync.Mutex
	grown map[string]struct{}
	order []string
	lost  bool
	news  chan struct{}
}

// NewHook returns a Hook.
func NewHook() *Hook { return &Hook{grown: map[string]struct{}{}, news: make(chan struct{}, 1)} }

// Changed notes that a stream of the log has changed. It does not block.
func (h *Hook) Changed(stream string) {
	id, is := thread.OfStream(stream)
	if !is {
		return
	}
	h.mu.Lock()
	if _, is := h.grown[id]; !is && !h.lost {
		if len(h.order) == mostGrown {
			h.lost, h.grown, h.order = true, map[string]struct{}{}, nil
		} else {
			h.grown[id] = struct{}{}
			h.order = append(h.order, id)
		}
	}
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// take returns the threads that have grown since, and whether there were too many to keep.
func (h *Hook) take() (ids []string, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids, lost = h.order, h.lost
	h.grown, h.order, h.lost = map[string]struct{}{}, nil, false
	return ids, lost
}

// watch passes on the threads that grow, until ctx is done. It calls lost where some may be missing.
func (d *Dispatcher) watch(ctx context.Context, grew chan<- string, lost func()) error {
	if d.Hook == nil {
		return d.watchList(ctx, grew, lost)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.Hook.news:
		}
		ids, some := d.Hook.take()
		if some {
			lost()
		}
		for _, id := range ids {
			if !pass(ctx, grew, id) {
				return nil
			}
		}
	}
}

// watchList watches the server's list. Between two connections changes are missed: with each one all threads are
// looked at.
func (d *Dispatcher) watchList(ctx context.Context, grew chan<- string, lost func()) error {
	for {
		err := d.List.Watch(ctx, client.Filter{}, 1, func(client.ListPage) error {
			lost()
			return nil
		}, func(c client.Change) error {
			if !c.Deleted {
				pass(ctx, grew, c.Summary.ID)
			}
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if client.Refused(err) {
			return err
		}
		d.Log.Warn("the list of threads can't be followed, and is tried again", "error", err)
		pause.For(ctx, watchWait)
	}
}

// lookAgain looks at all threads each time that look has an element, until ctx is done.
func (d *Dispatcher) lookAgain(ctx context.Context, look <-chan struct{}, grew chan<- string) error {
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-look:
		}
		for {
			err := d.look(ctx, func(at rows.ThreadAt) { pass(ctx, grew, at.ID) })
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				break
			}
			if !failing {
				d.Log.Warn("threads can't be looked at, and are tried again", "error", err)
			}
			failing = true
			pause.For(ctx, lookAfter)
		}
		if failing {
			d.Log.Info("threads are looked at again")
		}
		failing = false
	}
}

// look calls f for the threads that have grown since nothing was open there, by the server's list. That may lack some
// that have grown in the last moments: who looks has to watch, too, or to look again.
func (d *Dispatcher) look(ctx context.Context, f func(at rows.ThreadAt)) error {
	for page, err := range d.List.Pages(ctx, client.Filter{}) {
		if err != nil {
			return err
		}
		some, at := make([]rows.ThreadAt, len(page.Threads)), map[string]rows.ThreadAt{}
		for i, v := range page.Threads {
			some[i] = rows.ThreadAt{ID: v.ID, Offset: v.Offset}
			at[v.ID] = some[i]
		}
		all, err := d.Rows(ctx)
		if err != nil {
			return err
		}
		ids, err := all.Unanswered(ctx, some)
		if err != nil {
			return err
		}
		for _, id := range ids {
			f(at[id])
		}
	}
	return ctx.Err()
}

// pass passes on a thread's id; false where ctx is done.
func pass(ctx context.Context, grew chan<- string, id string) bool {
	select {
	case grew <- id:
		return true
	case <-ctx.Done():
		return false
	}
}
