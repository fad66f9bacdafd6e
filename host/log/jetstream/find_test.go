package jetstream_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// TestLargeFind holds Find against Lookup, for an engine that has not read the stream: keys at its start, in its
// middle and at its end, of one append and of several messages, of a stream that was made again, and keys that it does
// not have.
func TestLargeFind(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *server.Options) { o.SyncAlways = false })
	config := configOf(t, s)
	config.Shards = 1
	e := open(t, config)
	fill := func(stream string, n int) {
		h := enginetest.Must(e.Head(t.Context(), stream))(t)
		for i := range n {
			data := make([]byte, 3000)
			if i%100 == 99 {
				data = make([]byte, 1200<<10) // several messages
			}
			a := enginetest.One(h.Last, fmt.Sprint("k", i), data)
			if i%10 == 0 {
				a.Records = append(a.Records, engine.Record{Key: fmt.Sprint("more", i), Data: []byte("x")})
			}
			h = enginetest.Must(e.Append(t.Context(), stream, a))(t)
		}
	}
	fill("s", 350)
	fill("again", 120)
	if err := e.Delete(t.Context(), "again"); err != nil {
		t.Fatal(err)
	}
	fill("again", 100)
	warm := open(t, config)
	for _, stream := range []string{"s", "again", "none"} {
		for _, key := range []string{"k0", "more10", "k99", "k150", "k299", "k340", "more340", "k349", "x"} {
			wantRecord, want, err := warm.Lookup(t.Context(), stream, key)
			if err != nil {
				t.Fatal(err)
			}
			fresh := open(t, config)
			for range 2 {
				got, ok, err := fresh.Find(t.Context(), stream, key)
				if d := cmp.Diff(wantRecord, got); ok != want || err != nil || d != "" {
					t.Errorf("%s, %q: %v, %v, want %v; %.300s", stream, key, ok, err, want, d)
				}
			}
		}
	}
}
