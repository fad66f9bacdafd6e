package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestPool(t *testing.T) {
	p := NewPool[int](3)
	rnd := rand.New(rand.NewPCG(1, 2))
	held := map[string][]*Pooled[int]{}
	for i := range 10_000 {
		name := fmt.Sprint("s", rnd.IntN(12))
		if all := held[name]; len(all) > 0 && rnd.IntN(2) == 0 {
			p.Release(all[0])
			held[name] = all[1:]
			continue
		}
		v := p.Acquire(name)
		if len(held[name]) > 0 && held[name][0] != v {
			t.Fatalf("%d: %s has two values", i, name)
		}
		held[name] = append(held[name], v)
	}
	used := 0
	for _, all := range held {
		if len(all) > 0 {
			used++
		}
	}
	if len(p.names) > used+3 || p.count > 3 {
		t.Errorf("%d are kept, %d of them idle, %d in use", len(p.names), p.count, used)
	}
	for _, all := range held {
		for _, v := range all {
			p.Release(v)
		}
	}
	// The values that were released last stay.
	for i, name := range []string{"a", "b", "c", "d"} {
		v := p.Acquire(name)
		v.Value = i
		p.Release(v)
	}
	for name, want := range map[string]bool{"a": false, "b": true, "c": true, "d": true} {
		if got := p.Peek(name) != nil; got != want {
			t.Errorf("%s is kept: %v", name, got)
		}
	}
}

// BenchmarkPool acquires a value while 100 to 100,000 others are in use. It takes as long with many as with few.
func BenchmarkPool(b *testing.B) {
	for _, n := range []int{100, 14_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := NewPool[int](10_000)
			for i := range n {
				p.Acquire(fmt.Sprint("used", i))
			}
			for i := 0; b.Loop(); i++ {
				p.Release(p.Acquire(fmt.Sprint("s", i%20_000)))
			}
		})
	}
}
