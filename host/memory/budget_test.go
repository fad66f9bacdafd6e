package memory

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	const mib = 1 << 20
	type step struct {
		who  string
		grow int
		want error
	}
	for _, tt := range []struct {
		name  string
		steps []step // of the budget of 64 MiB, 8 are for small requests
		held  int64
	}{
		{"small and large", []step{{"a", 1000, nil}, {"b", mib, nil}}, mib + 1000},
		{"one may have three quarters", []step{{"a", 100 * mib, nil}}, 42 * mib},
		{"and leaves the rest to others", []step{
			{"a", 100 * mib, nil},
			{"b", 14 * mib, nil},
			{"c", mib, ErrBusy},
			{"c", 200 << 10, nil},
		}, 56*mib + 200<<10},
		{"a holder's share of what is large", []step{
			{"a", 7 * mib, nil},
			{"a", 7 * mib, nil},
			{"a", mib, ErrShare},
			{"b", 7 * mib, nil},
		}, 21 * mib},
		{"a holder's share of what is small", []step{
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 256 << 10, nil},
			{"a", 1, ErrShare},
			{"b", 1, nil},
		}, 2*mib + 1},
		{"large only when it is alone", []step{{"a", 1, nil}, {"a", 15 * mib, ErrShare}, {"b", 15 * mib, nil}}, 15*mib + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBudget(64 * mib)
			var all []*Lease
			for i, s := range tt.steps {
				l := b.Lease(s.who)
				all = append(all, l)
				if err := l.Grow(s.grow); !errors.Is(err, s.want) || err != nil && s.want == nil {
					t.Errorf("%d: got %v, want %v", i, err, s.want)
				}
			}
			if got := b.Held(); got != tt.held {
				t.Errorf("held %d, want %d", got, tt.held)
			}
			for _, l := range all {
				l.Free()
			}
			if got := b.Held(); got != 0 || len(b.holders) != 0 {
				t.Errorf("held %d by %d when all is over", got, len(b.holders))
			}
			for _, p := range b.parts {
				if !p.room.TryAcquire(p.size) {
					t.Error("some room is lost")
				}
			}
		})
	}
}

// A request that grows moves from the part of the small ones to the other.
func TestBudgetGrows(t *testing.T) {
	b := NewBudget(64 << 20)
	l := b.Lease("a")
	for range 32 {
		if err := l.Grow(64 << 10); err != nil {
			t.Fatal(err)
		}
	}
	if l.part != large || l.n != 2<<20 || b.Held() != 2<<20 || !b.parts[small].room.TryAcquire(b.parts[small].size) {
		t.Errorf("in part %d with %d, held %d", l.part, l.n, b.Held())
	}
	l.Free()
}

func TestBudgetWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(64 << 20)
		first, second := b.Lease("a"), b.Lease("b")
		defer second.Free()
		if err := first.Grow(42 << 20); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := second.wait(t.Context(), 42<<20); !errors.Is(err, ErrBusy) || time.Since(began) != budgetWait {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		go func() {
			time.Sleep(time.Second)
			first.Free()
		}()
		began = time.Now()
		if err := second.wait(t.Context(), 42<<20); err != nil || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}

// A lease that keeps a part of what it was charged holds just that.
func TestLeaseKeeps(t *testing.T) {
	b := NewBudget(64 << 20)
	l := b.Lease("a")
	for _, n := range []int{9 << 20, 1 << 10, 100 << 20, 0} {
		if err := l.Grow(10 << 20); err != nil {
			t.Fatal(err)
		}
		before := b.Held()
		l.Keep(n)
		if got := b.Held(); got != min(before, int64(n)) {
			t.Errorf("of %d keeps %d: %d", before, n, got)
		}
	}
	l.Free()
	if b.Held() != 0 || len(b.holders) != 0 {
		t.Errorf("%d held, %d holders", b.Held(), len(b.holders))
	}
}
