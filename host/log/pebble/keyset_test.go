package pebble

import (
	"fmt"
	"testing"
)

// TestKeySet adds 100,000 keys. The set reports each of them, and at most one in 50 of as many others.
func TestKeySet(t *testing.T) {
	const n = 100_000
	var s keySet
	for i := range n {
		s.add(keyHash(fmt.Appendf(nil, "member:%d", i)))
		if i%1000 == 0 && !s.has(keyHash([]byte("member:0"))) {
			t.Fatalf("the set misses the first of %d keys", i)
		}
	}
	wrong := 0
	for i := range n {
		if !s.has(keyHash(fmt.Appendf(nil, "member:%d", i))) {
			t.Fatalf("the set misses key %d", i)
		}
		if s.has(keyHash(fmt.Appendf(nil, "other:%d", i))) {
			wrong++
		}
	}
	t.Logf("%d of %d other keys are reported", wrong, n)
	if wrong > n/50 {
		t.Errorf("%d of %d other keys are reported", wrong, n)
	}
}
