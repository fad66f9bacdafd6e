package pebble_test

import (
	"fmt"
	"testing"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// TestFilterBytes appends to and looks up many streams, whose filters together are larger than the bound. The filters
// stay within it, and every look-up is right whether its stream has a filter or had one.
func TestFilterBytes(t *testing.T) {
	const most, streams, keys = 64 << 10, 100, 600
	p := enginetest.Must(pebble.Open(t.TempDir(), enginetest.Logger(t)))(t)
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	p.BoundFilters(most)
	heads := make([]engine.Head, streams)
	full := 0
	for round := range 3 {
		for i := range streams {
			name := fmt.Sprint("s", i)
			var records []engine.Record
			for k := range keys {
				key := fmt.Sprintf("%d.%d", round, k)
				records = append(records, engine.Record{At: enginetest.Now, Key: key, Data: []byte(key)})
			}
			a := engine.Append{After: heads[i].Last, Records: records}
			heads[i] = enginetest.Must(p.Append(t.Context(), name, a))(t)
			for k := range 20 {
				if _, ok := enginetest.Lookup(t, p, name, fmt.Sprintf("%d.%d", round, k)); !ok {
					t.Fatalf("stream %s misses key %d of round %d", name, k, round)
				}
				if _, ok := enginetest.Lookup(t, p, name, fmt.Sprintf("%d.%d", round+1, k)); ok {
					t.Fatalf("stream %s has key %d of the round after %d", name, k, round)
				}
			}
			count, bytes := p.Filters()
			if bytes > most {
				t.Fatalf("%d filters take %d bytes, want at most %d", count, bytes, most)
			}
			full = max(full, count)
		}
	}
	if full < 10 || full >= streams {
		t.Errorf("at most %d of %d streams had a filter at the same time", full, streams)
	}
	// One stream that is larger than the bound has the only filter.
	p.BoundFilters(1)
	for range 20 {
		enginetest.Lookup(t, p, "s0", "none")
	}
	if count, bytes := p.Filters(); count != 1 || bytes <= 1 {
		t.Errorf("%d filters of %d bytes, want one", count, bytes)
	}
	if err := p.Delete(t.Context(), "s0"); err != nil {
		t.Error(err)
	}
	if count, bytes := p.Filters(); count != 0 || bytes != 0 {
		t.Errorf("after the stream is deleted: %d filters of %d bytes", count, bytes)
	}
}
