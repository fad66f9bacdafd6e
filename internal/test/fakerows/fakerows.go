// Package fakerows is a double of the rows of threads and boxes that package control has on Postgres, in memory. It
// keeps the time of its caller, so it can be used in virtual time. Conform holds both to the same behaviour.
package fakerows

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
)

// Store is the rows. It is safe for concurrent use.
type Store struct {
	provider string

	mu      sync.Mutex
	next    int
	boxes   map[string]*box
	threads map[string]*row
	notices []rows.Notice
}

// box is the row of a box.
type box struct {
	rows.Box
	until, condemned, doubted time.Time
	held                      time.Time // the start of the newest hold
	maker                     string
	used                      bool
	holds                     []rows.Hold // in the order of their start
	last                      []string    // threads, when it died
}

// row is the row of a thread.
type row struct {
	status, box, run string
	closed           bool
	claimed, version time.Time
}

// New returns rows whose boxes are of a provider.
func New(provider string) *Store {
	return &Store{provider: provider, boxes: map[string]*box{}, threads: map[string]*row{}}
}

// Thread makes the row of a driven thread; box is the row of its box, "" for none.
func (s *Store) Thread(id, box string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.threads[id] = &row{status: "idle", box: box, version: time.Now()}
}

// Close closes a thread.
func (s *Store) Close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.threads[id].closed = true
}

// Delete deletes the row of a thread.
func (s *Store) Delete(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.threads, id)
}

// Box returns the row of a thread's box; the zero one for none.
func (s *Store) Box(thread string) rows.Box {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.of(thread); b != nil {
		return b.Box
	}
	return rows.Box{}
}

// of returns the box of a thread; nil for none.
func (s *Store) of(thread string) *box {
	if t := s.threads[thread]; t != nil {
		return s.boxes[t.box]
	}
	return nil
}

// As returns the rows as one process reaches them: call carries each transaction out, or not.
func (s *Store) As(call func(do func() error) error) Rows { return Rows{s, call} }

// Rows are the rows for one process.
type Rows struct {
	*Store
	call func(do func() error) error
}

var (
	_ resolve.Rows   = Rows{}
	_ reconcile.Rows = Rows{}
)

// tx carries a transaction out.
func (r Rows) tx(f func() error) error {
	return r.call(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return f()
	})
}

// bury declares a box dead, which ends its holds.
func (s *Store) bury(b *box) {
	if b.Status != rows.BoxDead {
		b.last = s.on(b.ID)
	}
	b.Status, b.holds, b.doubted = rows.BoxDead, nil, time.Time{}
}

// on returns the threads whose rows name a box.
func (s *Store) on(box string) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(s.threads)) {
		if s.threads[id].box == box {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *Store) expire(b *box) {
	if b.Status == rows.BoxPending && b.until.Before(time.Now()) {
		s.bury(b)
	}
}

// Claimed implements resolve.Rows.
func (r Rows) Claimed(_ context.Context, thread string) (run string, since time.Duration, err error) {
	err = r.tx(func() error {
		if t := r.threads[thread]; t != nil && t.run != "" {
			run, since = t.run, time.Since(t.claimed)
		}
		return nil
	})
	return run, since, err
}

// Obtain implements resolve.Rows.
func (r Rows) Obtain(_ context.Context, o rows.BoxOrder) (turn rows.BoxTurn, err error) {
	err = r.tx(func() error {
		turn = rows.BoxTurn{}
		t := r.threads[o.Thread]
		if t == nil {
			return fmt.Errorf("thread %s: no such row", o.Thread)
		}
		fresh := t.status == "running" && t.run != "" && time.Since(t.claimed) < rows.ClaimTimeout
		if o.Claim && fresh && t.run != o.Hold.RunID && !slices.Contains(o.Known, t.run) {
			return &rows.ClaimedError{Thread: o.Thread, Run: t.run}
		}
		b := r.boxes[t.box]
		if b != nil {
			r.expire(b)
		}
		switch {
		case b == nil || b.Status == rows.BoxDead:
			b = r.replace(o.Thread, b, o)
			turn.Make = true
		case b.Status == rows.BoxPending && strings.HasPrefix(b.maker, o.Hold.Holder+"#"):
			b.maker, b.Ref, b.until = o.Maker, "", time.Now().Add(rows.MakeTimeout)
			turn.Make, turn.Taken = true, true
		}
		turn.Row = b.Box
		for _, n := range r.notices {
			if n.Row == b.ID {
				turn.Notices = append(turn.Notices, n)
			}
		}
		slices.SortFunc(turn.Notices, func(a, b rows.Notice) int { return strings.Compare(a.Thread, b.Thread) })
		if o.Claim {
			t.status, t.run, t.claimed, t.version = "running", o.Hold.RunID, time.Now(), time.Now()
		}
		b.hold(o.Hold)
		return nil
	})
	return turn, err
}

// replace makes the row of a box, in place of a dead one or of none.
func (s *Store) replace(thread string, dead *box, o rows.BoxOrder) *box {
	s.next++
	b := &box{
		Box: rows.Box{
			ID: fmt.Sprintf("s%d", s.next), House: "h", Environment: o.Environment, Provider: s.provider,
			Ephemeral: o.Ephemeral, Status: rows.BoxPending,
		},
		until: time.Now().Add(rows.MakeTimeout), maker: o.Maker,
	}
	s.boxes[b.ID] = b
	if dead == nil {
		s.threads[thread].box = b.ID
		return b
	}
	late := map[string]string{}
	s.notices = slices.DeleteFunc(s.notices, func(n rows.Notice) bool {
		if n.Row == dead.ID {
			late[n.Thread] = n.From
		}
		return n.Row == dead.ID
	})
	for _, id := range s.on(dead.ID) {
		s.threads[id].box = b.ID
		from := late[id]
		if from == "" {
			from = dead.ID
		}
		s.notices = append(s.notices, rows.Notice{Thread: id, Row: b.ID, From: from})
	}
	return b
}

// hold puts a hold, or renews it. No two of them begin at the same time: virtual time stands still.
func (b *box) hold(h rows.Hold) {
	b.drop(h.Holder)
	if h.At = time.Now(); !h.At.After(b.held) {
		h.At = b.held.Add(time.Nanosecond)
	}
	b.held = h.At
	b.holds = append(b.holds, h)
}

func (b *box) drop(holder string) {
	b.holds = slices.DeleteFunc(b.holds, func(h rows.Hold) bool { return h.Holder == holder })
}

// Noted implements resolve.Rows.
func (r Rows) Noted(_ context.Context, noted rows.Notice) error {
	return r.tx(func() error {
		r.notices = slices.DeleteFunc(r.notices, func(n rows.Notice) bool {
			return n.Row == noted.Row && n.Thread == noted.Thread
		})
		return nil
	})
}

// Notices implements reconcile.Rows.
func (r Rows) Notices(context.Context) (all []rows.Notice, err error) {
	err = r.tx(func() error { all = slices.Clone(r.notices); return nil })
	return all, err
}

// Renew implements resolve.Rows.
func (r Rows) Renew(_ context.Context, row, maker, ref string) error {
	return r.tx(func() error {
		b := r.boxes[row]
		if b == nil || b.maker != maker || b.Status != rows.BoxPending {
			return lease.ErrReleased
		}
		if b.until = time.Now().Add(rows.MakeTimeout); ref != "" {
			b.Ref = ref
		}
		return nil
	})
}

// Ready implements resolve.Rows.
func (r Rows) Ready(_ context.Context, row, maker, ref string) error {
	return r.tx(func() error {
		b := r.boxes[row]
		if b == nil || b.maker != maker || b.Status == rows.BoxDead || b.Status == rows.BoxLive && b.Ref != ref {
			return lease.ErrReleased
		}
		b.Status, b.Ref, b.used = rows.BoxLive, ref, true
		return nil
	})
}

// GiveUp implements resolve.Rows.
func (r Rows) GiveUp(_ context.Context, row, maker string) (now rows.Box, mine bool, err error) {
	err = r.tx(func() error {
		now, mine = rows.Box{}, false
		if b := r.boxes[row]; b != nil {
			if mine = b.maker == maker; mine && b.Status == rows.BoxPending {
				r.bury(b)
			}
			now = b.Box
		}
		return nil
	})
	return now, mine, err
}

// Ended implements resolve.Rows.
func (r Rows) Ended(_ context.Context, thread, run, status string) error {
	return r.tx(func() error {
		if t := r.threads[thread]; t != nil && t.status == "running" && t.run == run {
			t.settle(status)
		}
		return nil
	})
}

// shown returns the status as the database has it.
func (t *row) shown() string {
	if t.closed {
		return rows.ThreadClosed
	}
	return t.status
}

func (t *row) settle(status string) {
	t.status, t.run, t.claimed, t.version = status, "", time.Time{}, time.Now()
}

// Row implements reap.Rows.
func (r Rows) Row(_ context.Context, id string) (now rows.BoxState, is bool, err error) {
	err = r.tx(func() error {
		now, is = rows.BoxState{ID: id}, false
		b := r.boxes[id]
		if b == nil {
			return nil
		}
		is, now.Ref, now.Used, now.Dead, now.Condemned = true, b.Ref, b.used, b.Status == rows.BoxDead, b.condemned
		on := r.on(id)
		for _, t := range slices.Concat(on, b.last) {
			if on := slices.Contains(on, t); on {
				row := r.threads[t]
				now.Threads = append(now.Threads, rows.BoxThread{
					ID: t, Status: row.shown(), Run: row.run,
				})
			} else {
				now.Threads = append(now.Threads, rows.BoxThread{ID: t})
			}
		}
		slices.SortFunc(now.Threads, func(a, b rows.BoxThread) int { return strings.Compare(a.ID, b.ID) })
		now.Threads = slices.CompactFunc(now.Threads, func(a, b rows.BoxThread) bool { return a.ID == b.ID })
		return nil
	})
	return now, is, err
}

// BoxAt implements reap.Rows.
func (r Rows) BoxAt(_ context.Context, provider, ref string) (id string, err error) {
	err = r.tx(func() error {
		id = ""
		for _, b := range r.boxes {
			if ref != "" && b.Ref == ref && b.Provider == provider {
				id = b.ID
			}
		}
		return nil
	})
	return id, err
}

// Release implements reap.Rows.
func (r Rows) Release(_ context.Context, id string, seen []rows.Hold, judged []string) (bool, error) {
	return r.die(id, seen, judged, time.Time{})
}

// Condemn implements reap.Rows.
func (r Rows) Condemn(_ context.Context, id string, seen []rows.Hold, judged []string) (bool, error) {
	return r.die(id, seen, judged, time.Now())
}

// die declares a box dead if its holds are those that were seen, and no thread runs in it that was not judged.
func (r Rows) die(id string, seen []rows.Hold, judged []string, condemned time.Time) (done bool, err error) {
	err = r.tx(func() error {
		b := r.boxes[id]
		if b == nil || b.Status == rows.BoxDead {
			done = true
			return nil
		}
		done = slices.Equal(b.holds, seen) && !slices.ContainsFunc(r.on(id), func(t string) bool {
			return r.threads[t].status == "running" && !slices.Contains(judged, t)
		})
		if done {
			r.bury(b)
			b.condemned = condemned
		}
		return nil
	})
	return done, err
}

// Gone implements reap.Rows.
func (r Rows) Gone(_ context.Context, id string) error {
	return r.tx(func() error {
		if b := r.boxes[id]; b != nil {
			r.bury(b)
			now := time.Now()
			b.DestroyedAt = &now
		}
		return nil
	})
}

// Doubt implements reap.Rows.
func (r Rows) Doubt(_ context.Context, id, _ string) error {
	return r.tx(func() error {
		if b := r.boxes[id]; b != nil && b.Status == rows.BoxLive && b.doubted.IsZero() {
			b.doubted = time.Now()
		}
		return nil
	})
}

// Doubted implements reconcile.Rows.
func (r Rows) Doubted(context.Context) ([]rows.Box, error) {
	return r.rows(func(b *box) bool { return !b.doubted.IsZero() && b.Status == rows.BoxLive })
}

// Trust implements reconcile.Rows.
func (r Rows) Trust(_ context.Context, id string) error {
	return r.tx(func() error {
		if b := r.boxes[id]; b != nil {
			b.doubted = time.Time{}
		}
		return nil
	})
}

// Expire implements reconcile.Rows.
func (r Rows) Expire(context.Context) error {
	return r.tx(func() error {
		for _, b := range r.boxes {
			r.expire(b)
			b.holds = slices.DeleteFunc(b.holds, func(h rows.Hold) bool { return h.Expired(time.Now()) })
		}
		return nil
	})
}

// Boxes implements reconcile.Rows.
func (r Rows) Boxes(_ context.Context, named []string) ([]rows.Box, error) {
	return r.rows(func(b *box) bool {
		return b.Status != rows.BoxDead || b.DestroyedAt == nil || slices.Contains(named, b.ID)
	})
}

func (r Rows) rows(which func(*box) bool) (all []rows.Box, err error) {
	err = r.tx(func() error {
		all = nil
		for _, id := range slices.Sorted(maps.Keys(r.boxes)) {
			if b := r.boxes[id]; which(b) {
				all = append(all, b.Box)
			}
		}
		return nil
	})
	return all, err
}

// Running implements reconcile.Rows.
func (r Rows) Running(_ context.Context, thread string) (now rows.Running, is bool, err error) {
	err = r.tx(func() error {
		if t := r.threads[thread]; t != nil && t.status == "running" {
			now, is = rows.Running{Run: t.run, Version: t.version}, true
			if t.run != "" {
				now.Since = time.Since(t.claimed)
			}
		}
		return nil
	})
	return now, is, err
}

// Follow implements reconcile.Rows.
func (r Rows) Follow(_ context.Context, thread string, seen rows.Running, status string) error {
	return r.tx(func() error {
		if t := r.threads[thread]; t != nil && t.status == "running" && t.version.Equal(seen.Version) {
			t.settle(status)
		}
		return nil
	})
}

// Unhold implements reconcile.Rows.
func (r Rows) Unhold(_ context.Context, thread string, runs []string) error {
	return r.tx(func() error {
		for _, b := range r.boxes {
			b.holds = slices.DeleteFunc(b.holds, func(h rows.Hold) bool {
				return h.TTL == 0 && h.ThreadID == thread && slices.Contains(runs, h.RunID)
			})
		}
		return nil
	})
}

// Commands implements reconcile.Rows.
func (r Rows) Commands(_ context.Context, thread string) (ids []string, err error) {
	err = r.tx(func() error {
		ids = nil
		for _, b := range r.boxes {
			for _, h := range b.holds {
				if h.TTL == 0 && h.ThreadID == thread && strings.HasPrefix(h.Holder, "exec:") {
					ids = append(ids, h.RunID)
				}
			}
		}
		return nil
	})
	return ids, err
}

// Stale implements reconcile.Rows.
func (r Rows) Stale(context.Context) (ids []string, err error) {
	err = r.tx(func() error {
		stale := map[string]bool{}
		for id, t := range r.threads {
			if t.run != "" && time.Since(t.claimed) > rows.ClaimTimeout {
				stale[id] = true
			}
		}
		for _, b := range r.boxes {
			for _, h := range b.holds {
				t := r.threads[h.ThreadID]
				if t != nil && t.status != "running" && h.TTL == 0 && time.Since(h.At) > rows.ClaimTimeout {
					stale[h.ThreadID] = true
				}
			}
		}
		ids = slices.Sorted(maps.Keys(stale))
		return nil
	})
	return ids, err
}

// Lease implements reap.Rows.
func (r Rows) Lease(id string) lease.Lease { return boxLease{r, id} }

// boxLease is the lease of a box.
type boxLease struct {
	rows Rows
	id   string
}

func (l boxLease) state() (*box, lease.State) {
	s := lease.State{Now: time.Now(), Released: true}
	b := l.rows.boxes[l.id]
	if b != nil && b.Status != rows.BoxDead {
		s.Released, s.Holds = false, slices.Clone(b.holds)
	}
	return b, s
}

// Read implements lease.Lease.
func (l boxLease) Read(context.Context) (s lease.State, err error) {
	err = l.rows.tx(func() error { _, s = l.state(); return nil })
	return s, err
}

// Hold implements lease.Lease.
func (l boxLease) Hold(_ context.Context, h rows.Hold) error {
	return l.rows.tx(func() error {
		b, s := l.state()
		if s.Released {
			return lease.ErrReleased
		}
		b.hold(h)
		return nil
	})
}

// Try implements lease.Lease.
func (l boxLease) Try(_ context.Context, h rows.Hold) (got bool, err error) {
	err = l.rows.tx(func() error {
		b, s := l.state()
		if s.Released {
			return lease.ErrReleased
		}
		other, held := s.Held(func(rows.Hold) bool { return false })
		if got = !held || other.Holder == h.Holder; got {
			b.hold(h)
		}
		return nil
	})
	return got && err == nil, err
}

// Drop implements lease.Lease.
func (l boxLease) Drop(_ context.Context, holder string) error {
	return l.rows.tx(func() error {
		if b := l.rows.boxes[l.id]; b != nil {
			b.drop(holder)
		}
		return nil
	})
}
