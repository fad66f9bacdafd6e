package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"
)

// atOnce is how many threads are settled at the same time.
const atOnce = 8

// All settles threads, a few at a time, and tells done of each. It goes on where one can't be settled; the errors are returned together.
func (r *Reconciler) All(ctx context.Context, ids []string, done func(id string, s State)) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	work := make(chan string)
	for range min(atOnce, len(ids)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for id := range work {
				s, err := r.Thread(ctx, id)
				mu.Lock()
				errs = append(errs, err)
				done(id, s)
				mu.Unlock()
			}
		}()
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		work <- id
	}
	close(work)
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// Versions tells of all threads, and of each something that changes whenever the thread does.
type Versions func(f func(id string, version uint64) error) error

// Loop settles, every so often, the threads that have changed since they were settled last, and those that were open then. It returns nil when ctx is done.
func (r *Reconciler) Loop(ctx context.Context, every time.Duration, threads Versions) error {
	settled := map[string]uint64{}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		versions := map[string]uint64{}
		var ids []string
		err := threads(func(id string, version uint64) error {
			versions[id] = version
			if was, is := settled[id]; !is || was != version {
				ids = append(ids, id)
			}
			return ctx.Err()
		})
		if err == nil {
			err = r.All(ctx, ids, func(id string, s State) {
				if delete(settled, id); !s.Open && len(s.Deeds) == 0 {
					settled[id] = versions[id]
				}
			})
		}
		if err != nil && ctx.Err() == nil && r.Log != nil {
			r.Log.Warn("not all threads could be settled", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
