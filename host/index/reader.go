package index

import (
	"context"
	"errors"
	"slices"
	"sync"

	"arbe.0sk.ar/runner/thread"
)

// Reader receives which threads have changed. Close it when done.
type Reader struct {
	index *Index
	news  chan struct{} // there is a change

	mu      sync.Mutex // guards the fields below
	some    bool       // only the changes of threads in wanted count
	wanted  []string   // the newest last
	changed map[string]struct{}
	order   []string
	lost    bool
}

// Change is a thread that has changed, with its summary, or that was deleted.
type Change struct {
	ID      string
	Summary thread.Summary
	Deleted bool
}

// mostChanges bounds the changes that wait for a reader.
const mostChanges = 10_000

// ErrSlow is the error of a reader that has not taken the changes: it has to list the threads again.
var ErrSlow = errors.New("too many changes wait for this reader")

// Watch returns a Reader of the changes from now on.
func (x *Index) Watch() *Reader { return x.watch(&Reader{}) }

func (x *Index) watch(r *Reader) *Reader {
	r.index, r.news, r.changed = x, make(chan struct{}, 1), map[string]struct{}{}
	x.readers.Lock()
	defer x.readers.Unlock()
	x.live[r] = struct{}{}
	return r
}

// MostWanted bounds the threads of a Reader that WatchSome has returned.
const MostWanted = 100

// WatchSome returns a Reader of the changes of the threads that are passed to Want, from then on.
func (x *Index) WatchSome() *Reader { return x.watch(&Reader{some: true}) }

// Want adds a thread to those whose changes a Reader of WatchSome receives. Beyond MostWanted the one that was added
// first is dropped.
func (r *Reader) Want(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.wanted, id) {
		return
	}
	r.wanted = append(r.wanted, id)
	r.wanted = r.wanted[max(0, len(r.wanted)-MostWanted):]
}

// Close ends the use of the Reader.
func (r *Reader) Close() {
	r.index.readers.Lock()
	defer r.index.readers.Unlock()
	delete(r.index.live, r)
}

// News receives when there are changes to take.
func (r *Reader) News() <-chan struct{} { return r.news }

// notify passes a change to the readers.
func (x *Index) notify(id string) {
	x.readers.Lock()
	defer x.readers.Unlock()
	for r := range x.live {
		r.add(id)
	}
}

func (r *Reader) add(id string) {
	r.mu.Lock()
	if r.some && !slices.Contains(r.wanted, id) {
		r.mu.Unlock()
		return
	}
	if _, is := r.changed[id]; !is && !r.lost {
		if len(r.order) == mostChanges {
			r.lost, r.changed, r.order = true, nil, nil
		} else {
			r.changed[id] = struct{}{}
			r.order = append(r.order, id)
		}
	}
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// Take returns the threads that have changed since the last Take, each once and as it is now, at most most of them.
// More reports whether more changes wait. It returns ErrSlow.
func (r *Reader) Take(ctx context.Context, most int) (changes []Change, more bool, err error) {
	r.mu.Lock()
	if r.lost {
		r.mu.Unlock()
		return nil, false, ErrSlow
	}
	ids := r.order[:min(most, len(r.order))]
	r.order = r.order[len(ids):]
	for _, id := range ids {
		delete(r.changed, id)
	}
	more = len(r.order) > 0
	r.mu.Unlock()
	for _, id := range ids {
		v, err := r.index.whole(ctx, id)
		switch {
		case errors.Is(err, ErrAbsent):
			changes = append(changes, Change{ID: id, Deleted: true})
		case err != nil:
			return changes, more, err
		default:
			changes = append(changes, Change{ID: id, Summary: v})
		}
	}
	return changes, more, nil
}
