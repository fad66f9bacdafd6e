package reconcile

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// All settles the threads with these ids, and the threads of this installation's boxes, in one pass. It passes the
// state of each to done, and continues after an error; it returns all errors together. A provider that does not
// answer delays its own threads only.
func (r *Reconciler) All(ctx context.Context, ids []string, done func(id string, s State)) error {
	known := map[string]uint64{}
	for _, id := range ids {
		known[id] = 0
	}
	return r.pass(ctx, ids, known, nil, true, true, done)
}

// waiting bounds the threads in progress, most of which wait for the server or a provider.
const waiting = 256

// pass settles ids, and the threads of boxes that are not known. A whole one also compares rows with machines.
func (r *Reconciler) pass(
	ctx context.Context,
	ids []string,
	known map[string]uint64,
	m *memory,
	urgent, whole bool,
	done func(id string, s State),
) error {
	p, err := r.begin(ctx)
	if err != nil {
		return err
	}
	p.memory = m
	errs := p.threads(ctx, ids, urgent, done)
	var others, stale []string
	if whole {
		stale, err = p.sweep(ctx)
		errs = append(errs, err)
	}
	for _, id := range stale {
		if !slices.Contains(ids, id) {
			delete(known, id)
		}
	}
	for _, id := range append(stale, p.threadsOfBoxes(ctx)...) {
		if _, is := known[id]; !is {
			known[id], others = 0, append(others, id)
		}
	}
	return errors.Join(append(append(errs, p.threads(ctx, others, urgent, done)...), ctx.Err())...)
}

func (p *pass) threads(ctx context.Context, ids []string, urgent bool, done func(id string, s State)) []error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	room := make(slots, waiting)
	for _, id := range ids {
		if room.acquire(ctx) != nil {
			break
		}
		wg.Go(func() {
			defer room.release()
			s, err := p.thread(ctx, id, urgent)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			done(id, s)
		})
	}
	wg.Wait()
	return errs
}

// threadsOfBoxes returns the threads in the labels of this installation's boxes. A box may outlive its thread.
func (p *pass) threadsOfBoxes(ctx context.Context) (ids []string) {
	for _, v := range p.views {
		boxes, _ := v.list(ctx) // a failure is an error of the threads that need the list
		for _, b := range boxes {
			if id := b.Labels[sandbox.LabelThread]; thread.ValidThread(id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Versions passes all threads to f, each with a number that changes whenever the thread does.
type Versions func(f func(id string, version uint64) error) error

// listEvery is the number of passes of a Loop for each one that lists all threads.
const listEvery = 4

// Loop makes a pass at each interval over the threads that were open after the last one, and every fourth time also
// over those that have changed since. It reads only the new entries of open threads. It passes the state of each to
// done, and returns nil when ctx is done. Beside the passes it looks at boxes that a host could not use.
func (r *Reconciler) Loop(
	ctx context.Context,
	every time.Duration,
	threads Versions,
	done func(id string, s State),
) error {
	settled := map[string]uint64{} // the version in which nothing was left to do
	open := map[string]bool{}
	versions := map[string]uint64{}
	known := memory{threads: map[string]*settling{}}
	said := map[bool]string{} // errors of the last pass over all threads, and of the last other one
	var looking sync.WaitGroup
	looking.Go(func() { r.looks(ctx) })
	defer looking.Wait()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		var ids []string
		var err error
		if n%listEvery == 0 {
			clear(versions)
			err = threads(func(id string, version uint64) error {
				versions[id] = version
				if was, is := settled[id]; !is || was != version {
					ids = append(ids, id)
				}
				return ctx.Err()
			})
		} else {
			ids = slices.Collect(maps.Keys(open))
		}
		if err == nil {
			err = r.pass(ctx, ids, versions, &known, false, n%listEvery == 0, func(id string, s State) {
				delete(settled, id)
				delete(open, id)
				switch {
				case s.Open:
					open[id] = true
				case len(s.Actions) == 0:
					settled[id] = versions[id]
				}
				if !s.Open {
					known.forget(id)
				}
				done(id, s)
			})
		}
		if whole := n%listEvery == 0; ctx.Err() == nil {
			said[whole] = r.report(err, said[whole])
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// report logs the errors of a pass, unless they are the last ones, and the end of errors. It returns those of the pass,
// in an order of their own: threads are settled in any.
func (r *Reconciler) report(err error, last string) (now string) {
	if err != nil {
		each := strings.Split(err.Error(), "\n")
		slices.Sort(each)
		now = strings.Join(each, "\n")
	}
	switch {
	case r.Log == nil || now == last:
	case err != nil:
		r.Log.Warn("reconcile pass failed for some threads", "error", err)
	default:
		r.Log.Info("reconcile passes succeed again")
	}
	return now
}

// memory keeps the state of open threads between passes. The nil memory keeps nothing.
type memory struct {
	mu      sync.Mutex
	threads map[string]*settling
}

func (m *memory) take(id string) *settling {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.threads[id]
	delete(m.threads, id)
	return t
}

func (m *memory) keep(t *settling) {
	if m != nil && t.next != "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.threads[t.id] = t
	}
}

func (m *memory) forget(id string) { m.take(id) }
