package request

import (
	"testing"
	"testing/synctest"
	"time"
)

// However many callers come, the number of buckets is bounded. Those of idle callers are deleted first.
func TestLimitRateMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewLimiter(1, 2)
		for i := range maxBuckets - 1 {
			p.Take(Caller(i+1), 1, time.Now())
		}
		time.Sleep(2 * time.Second) // these are idle now
		busy := Caller(1 << 40)
		p.Take(busy, 1, time.Now())
		p.Take(busy, 1, time.Now())
		for i := range 3 * maxBuckets {
			if i%(maxBuckets/4) == 0 {
				time.Sleep(2 * time.Second)
				p.Take(busy, 1, time.Now())
				p.Take(busy, 1, time.Now())
				if p.Take(busy, 1, time.Now()) == 0 {
					t.Errorf("after %d: the busy caller's bucket was deleted", i)
				}
			}
			p.Take(Caller(1<<41+i), 1, time.Now())
			if len(p.buckets) > maxBuckets {
				t.Fatalf("%d buckets are kept", len(p.buckets))
			}
		}
		for i := range 3 * maxBuckets { // no caller is idle
			p.Take(Caller(1<<42+i), 1, time.Now())
		}
		if len(p.buckets) > maxBuckets {
			t.Fatalf("%d buckets are kept", len(p.buckets))
		}
	})
}
