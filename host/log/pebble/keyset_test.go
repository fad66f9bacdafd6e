package pebble

import (
	"fmt"
	"testing"
)

// No member is taken for a stranger, and few strangers for members.
func TestSeen(t *testing.T) {
	const n = 100_000
	var s seen
	for i := range n {
		s.add(seenHash(fmt.Appendf(nil, "member:%d", i)))
		if i%1000 == 0 && !s.has(seenHash([]byte("member:0"))) {
			t.Fatalf("the first of %d is gone", i)
		}
	}
	wrong := 0
	for i := range n {
		if !s.has(seenHash(fmt.Appendf(nil, "member:%d", i))) {
			t.Fatalf("member %d is not there", i)
		}
		if s.has(seenHash(fmt.Appendf(nil, "stranger:%d", i))) {
			wrong++
		}
	}
	t.Logf("%d of %d strangers are taken for members", wrong, n)
	if wrong > n/50 {
		t.Errorf("%d of %d strangers are taken for members", wrong, n)
	}
}
