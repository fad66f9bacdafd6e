package engine

import "testing"

// TestLRU keeps what was used last within the bound, or one value that is larger.
func TestLRU(t *testing.T) {
	l := LRU[string, int]{Most: 30}
	has := func(want string) {
		t.Helper()
		got, bytes := "", 0
		for at := l.order.Front(); at != nil; at = at.Next() {
			k := at.Value.(*kept[string, int])
			got, bytes = got+k.key, bytes+k.bytes
		}
		if got != want || len(l.at) != len(want) || l.bytes != bytes {
			t.Errorf("it has %q, %d keys, and counts %d bytes: want %q, %d bytes", got, len(l.at), l.bytes, want, bytes)
		}
	}
	for i, key := range []string{"a", "b", "c"} {
		l.Put(key, i, 10)
	}
	has("cba")
	if v, ok := l.Get("a"); v != 0 || !ok {
		t.Errorf("a is %d, %v", v, ok)
	}
	l.Put("d", 3, 10)
	has("dac")
	if _, ok := l.Get("b"); ok {
		t.Error("b is kept")
	}
	l.Put("c", 4, 20)
	has("cd")
	if v, _ := l.Get("c"); v != 4 {
		t.Errorf("c is %d", v)
	}
	l.Put("e", 5, 100)
	has("e")
	l.Drop("e")
	l.Drop("none")
	has("")
	l.Put("f", 6, 1)
	l.Put("g", 7, 1)
	l.DropIf(func(key string) bool { return key == "f" })
	has("g")
}
