package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/memory"
)

// follower is a member that knows its place.
type follower struct {
	*member
	place uint64
	alone int // places that it had to make up for alone
}

// next takes the next chunk, and reports whether there was one. Without done the chunk stays in use.
func (f *follower) next(t *testing.T, done bool) (*chunk, bool) {
	t.Helper()
	c, at, _, _ := f.take()
	if at < f.place {
		t.Fatalf("at %d, after %d", at, f.place)
	}
	f.alone += int(at - f.place)
	f.place = at
	if c == nil {
		return nil, false
	}
	if len(c.data) > 0 && c.data[0] != byte(c.to) {
		t.Errorf("the data of %d is at %d", c.data[0], c.to)
	}
	f.place = c.to
	if done {
		f.ring.done(c)
	}
	return c, true
}

// data returns the data of the chunk to a place.
func data(to uint64, size int) []byte { return bytes.Repeat([]byte{byte(to)}, size) }

// Members take each chunk once, in order, and nothing is held for a chunk that all of them have.
func TestRing(t *testing.T) {
	b := memory.NewBudget(64 << 20)
	r := newRing(10, b.Lease("ring"))
	first := &follower{member: r.join(), place: 10}
	second := &follower{member: r.join(), place: 10}
	_, _, changed, _ := first.take()
	for to := uint64(11); to < 14; to++ {
		if _, added := r.add(data(to, 100), to, time.Now()); !added {
			t.Fatal("the ring is full")
		}
	}
	<-changed
	late := &follower{member: r.join(), place: 13}
	for range 3 {
		if _, ok := first.next(t, true); !ok {
			t.Fatal("no chunk")
		}
	}
	if got := b.Held(); got != 300 {
		t.Errorf("%d held for the second member", got)
	}
	c, _ := second.next(t, false)
	if got := b.Held(); got != 300 {
		t.Errorf("%d held while the second member writes", got)
	}
	r.done(c)
	if got := b.Held(); got != 200 {
		t.Errorf("%d held, want 200", got)
	}
	if second.leave(); r.members != 2 || b.Held() != 0 {
		t.Errorf("%d left, %d held for none", r.members, b.Held())
	}
	if _, ok := late.next(t, true); ok || late.alone != 0 {
		t.Error("a member has a chunk of before it joined")
	}
	want := errors.New("over")
	r.add(data(14, 1), 14, time.Now())
	r.end(want)
	for _, f := range []*follower{first, late} {
		if _, ok := f.next(t, true); !ok || f.alone != 0 {
			t.Errorf("%v, %d alone", ok, f.alone)
		}
		_, _, changed, err := f.take()
		<-changed
		if !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
	}
}

// A member that takes nothing keeps the others waiting once, when the ring is full, and for ringHolds at most. It gets
// the place up to which it has missed all, and is a member again.
func TestRingSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBudget(64 << 20)
		r := newRing(0, b.Lease("ring"))
		slow, fast := &follower{member: r.join()}, &follower{member: r.join()}
		var held *chunk
		const size, n = ringBytes / 4, 20
		began := time.Now()
		for to := uint64(1); to <= n; to++ {
			if err := r.publish(t.Context(), data(to, size), to); err != nil {
				t.Fatal(err)
			}
			if _, ok := fast.next(t, true); !ok || fast.alone > 0 {
				t.Fatalf("%d: no chunk", to)
			}
			if to == 1 {
				held, _ = slow.next(t, false) // it writes this one all the time
			}
			want := time.Duration(0)
			if to > 5 {
				want = ringHolds
			}
			if got := time.Since(began); got != want {
				t.Errorf("%d: the writer waited for %v, want %v", to, got, want)
			}
			if got := b.Held(); got > ringBytes+size {
				t.Errorf("%d held", got)
			}
		}
		r.done(held)
		if _, ok := slow.next(t, true); ok || slow.place != n || slow.alone != n-1 || b.Held() != 0 {
			t.Errorf("%v, at %d, %d of them alone, %d held", ok, slow.place, slow.alone, b.Held())
		}
		if r.publish(t.Context(), data(n+1, ringBytes+1), n+1) != nil || b.Held() != 0 {
			t.Error("a chunk that is too large is held")
		}
		for _, f := range []*follower{slow, fast} {
			if _, ok := f.next(t, true); ok || f.place != n+1 {
				t.Errorf("%v, at %d", ok, f.place)
			}
		}
		for to := uint64(n + 2); to < n+6; to++ {
			if err := r.publish(t.Context(), data(to, size), to); err != nil {
				t.Fatal(err)
			}
			if _, ok := slow.next(t, true); !ok || slow.alone != n {
				t.Errorf("%v, %d alone", ok, slow.alone)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.publish(ctx, data(n+6, size), n+6); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		slow.leave()
		fast.leave()
		if b.Held() != 0 || r.members != 0 {
			t.Errorf("%d held for %d", b.Held(), r.members)
		}
	})
}

// A chunk that the budget has no room for is not held: members render alone up to its end.
func TestRingBudget(t *testing.T) {
	b := memory.NewBudget(0)
	other := b.Lease("another")
	r := newRing(0, b.Lease("ring"))
	f := &follower{member: r.join()}
	r.add(data(1, 1), 1, time.Now())
	if err := other.Grow(1 << 30); err != nil {
		t.Fatal(err)
	}
	var more []*memory.Lease
	for i := 0; ; i++ {
		l := b.Lease(fmt.Sprint(i))
		if l.Grow(400<<10) != nil {
			break
		}
		more = append(more, l)
	}
	before := b.Held()
	r.add(data(2, 512<<10), 2, time.Now())
	if _, ok := f.next(t, true); ok || f.place != 2 || f.alone != 2 {
		t.Errorf("%v, at %d, %d alone", ok, f.place, f.alone)
	}
	if b.Held() >= before {
		t.Errorf("%d held, %d before", b.Held(), before)
	}
	for _, l := range append(more, other) {
		l.Free()
	}
	r.add(data(3, 512<<10), 3, time.Now())
	if _, ok := f.next(t, true); !ok || f.alone != 2 || b.Held() != 0 {
		t.Errorf("%v, %d alone, %d held", ok, f.alone, b.Held())
	}
}

// Members that come, go and dawdle while the writer adds get all chunks but those that are reported lost.
func TestRingConcurrent(t *testing.T) {
	b := memory.NewBudget(64 << 20)
	r := newRing(0, b.Lease("ring"))
	var all sync.WaitGroup
	const members, n = 8, 1000
	for i := range members {
		m := r.join()
		all.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(i)))
			f := &follower{member: m}
			for f.place < n {
				if random.IntN(50) == 0 {
					place := f.place
					f.leave()
					f = &follower{member: r.join(), place: place}
				}
				c, at, changed, _ := f.take()
				if at < f.place || c != nil && c.to != c.from+1 {
					t.Errorf("at %d, after %d", at, f.place)
					return
				}
				f.place = at
				if c == nil {
					if at < n {
						<-changed
					}
					continue
				}
				f.place = c.to
				r.done(c)
			}
			f.leave()
		})
	}
	random, any := rand.New(rand.NewPCG(7, 100)), make([]byte, ringBytes/4)
	for to := uint64(1); to <= n; to++ {
		if err := r.publish(t.Context(), any[:random.IntN(len(any))], to); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if b.Held() != 0 || r.members != 0 || len(r.chunks) != 0 {
		t.Errorf("%d held, %d members, %d chunks", b.Held(), r.members, len(r.chunks))
	}
}
