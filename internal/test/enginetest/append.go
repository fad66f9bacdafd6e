package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

func (s suite) appendAndRead(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		h := Head(t, e, "s")
		if h.Exists() || h.Last != 0 || h.Data != 0 {
			t.Errorf("a stream that was never written: %+v", h)
		}
		if got := ReadAll(t, e, "s", 100); len(got) != 0 {
			t.Errorf("it has %d records", len(got))
		}
		at := time.UnixMilli(1_700_000_000_123)
		var want []string
		for i := range 5 {
			var rs []engine.Record
			for j := range i + 1 {
				data := fmt.Sprintf(`{"n":"%d.%d"}`, i, j)
				want = append(want, data)
				rs = append(rs, engine.Record{
					At:   at.Add(time.Duration(i) * time.Second),
					Key:  fmt.Sprintf("k%d.%d", i, j),
					Data: []byte(data),
				})
			}
			next := Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, Records: rs}))(t)
			if next.Last <= h.Last || next.Data <= h.Data || next.Data > next.Last {
				t.Errorf("append %d: %+v after %+v", i, next, h)
			}
			if again := Head(t, e, "s"); !cmp.Equal(again, next) {
				t.Errorf("append %d: head %+v, was %+v", i, again, next)
			}
			h = next
		}
		got := ReadAll(t, e, "s", 1<<20)
		if d := cmp.Diff(Texts(got), want); d != "" {
			t.Error(d)
		}
		if !got[0].At.Equal(at) || !got[14].At.Equal(at.Add(4*time.Second)) {
			t.Errorf("times: %s to %s", got[0].At, got[14].At)
		}
		if part := Must(e.Read(t.Context(), "s", got[2].Seq, got[5].Seq, 1<<20))(t); len(part) != 3 {
			t.Errorf("from %d to %d: %q", got[2].Seq, got[5].Seq, Texts(part))
		}
		for _, empty := range []string{"t", "S", "s "} {
			if h := Head(t, e, empty); h.Exists() {
				t.Errorf("stream %q: %+v", empty, h)
			}
		}
	})
}

func (s suite) conflict(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		first := Add(t, e, "s", "a")
		second := Add(t, e, "s", "b")
		for _, after := range []uint64{0, first.Last, second.Last + 1, second.Last + 1000} {
			for _, size := range []int{1, 3 << 20} { // an append of one message and one of several
				_, err := e.Append(t.Context(), "s", engine.Append{
					After:   after,
					Records: []engine.Record{{At: Now, Key: "c", Data: bytes.Repeat([]byte("c"), size)}},
					State:   []byte("c"),
					Values:  map[string][]byte{"c": []byte("c")},
				})
				if !errors.Is(err, engine.ErrConflict) {
					t.Errorf("after %d of %d: %v", after, second.Last, err)
				}
			}
		}
		if h := Head(t, e, "s"); !cmp.Equal(h, second) {
			t.Errorf("the head is %+v, was %+v", h, second)
		}
		if got := Texts(ReadAll(t, e, "s", 1<<20)); !cmp.Equal(got, []string{"a", "b"}) {
			t.Errorf("records %q", got)
		}
		if _, ok := Lookup(t, e, "s", "c"); ok {
			t.Error("there is the key of an append that was refused")
		}
		if v := Must(e.Values(t.Context(), "s", ""))(t); len(v) != 0 {
			t.Errorf("values %q", v)
		}
	})
}

// race makes concurrent appends after the same head. One succeeds; the others fail with ErrConflict and leave no
// record.
func (s suite) race(t *testing.T) {
	const writers, many = 8, 15
	s.once(t, func(t *testing.T, e log.Engine) {
		var all sync.WaitGroup
		seqs := make([][]uint64, writers)
		for w := range writers {
			all.Go(func() {
				for i := range many {
					h, err := Persist(t.Context(), e, "s", fmt.Sprintf("%d.%d", w, i))
					if err != nil {
						t.Errorf("writer %d: %v", w, err)
						return
					}
					seqs[w] = append(seqs[w], h.Last)
				}
			})
		}
		all.Wait()
		next := make([]int, writers)
		got := ReadAll(t, e, "s", 1<<20)
		for i, r := range got {
			var w, n int
			if _, err := fmt.Sscanf(string(r.Data), "%d.%d", &w, &n); err != nil {
				t.Fatal(err)
			}
			if n != next[w] || seqs[w][n] != r.Seq || i > 0 && r.Seq <= got[i-1].Seq {
				t.Errorf("record %d is %s at %d, and its append returned %d", i, r.Data, r.Seq, seqs[w][n])
			}
			next[w]++
		}
		if len(got) != writers*many {
			t.Errorf("%d records, want %d", len(got), writers*many)
		}
	})
}

// control makes appends without records. They change the head, and Read does not return them.
func (s suite) control(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		h := Must(e.Append(t.Context(), "s", engine.Append{State: []byte("made")}))(t)
		if h.Last == 0 || h.Data != 0 || !h.Exists() {
			t.Errorf("made: %+v", h)
		}
		if got := Must(e.Read(t.Context(), "s", 0, h.Last, 1000))(t); len(got) != 0 {
			t.Errorf("read %q", Texts(got))
		}
		for _, many := range []int{600, 0, 3} { // first more than one page
			for i := range many {
				next := Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, State: h.State}))(t)
				if next.Last <= h.Last || next.Data != h.Data {
					t.Fatalf("control %d: %+v after %+v", i, next, h)
				}
				h = next
			}
			h = Add(t, e, "s", fmt.Sprint("x", many))
			if h.Data > h.Last || h.Data == 0 {
				t.Errorf("record: %+v", h)
			}
		}
		if got := ReadAll(t, e, "s", 1); len(got) != 3 {
			t.Errorf("read %d records one by one", len(got))
		}
		if got := Must(e.Read(t.Context(), "s", 0, h.Last, 1000))(t); len(got) != 3 {
			t.Errorf("read %d records", len(got))
		}
	})
}

func (s suite) large(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		for _, tt := range []struct {
			name        string
			count, size int
		}{
			{"record", 1, 8 << 20},
			{"records", 1000, 200},
			{"thousand", 1000, 3 << 10},
			{"limit", 1, 1 << 20},
			{"body", 4, 8 << 20},
		} {
			t.Run(tt.name, func(t *testing.T) {
				random := rand.NewChaCha8([32]byte{1})
				rs := make([]engine.Record, tt.count)
				for i := range rs {
					rs[i] = engine.Record{
						At:   time.UnixMilli(int64(i)),
						Key:  fmt.Sprint("k", i),
						Data: make([]byte, tt.size),
					}
					_, _ = random.Read(rs[i].Data) // it never fails
				}
				before := Add(t, e, tt.name, "before")
				a := engine.Append{After: before.Last, Records: rs, State: []byte("s")}
				h := Must(e.Append(t.Context(), tt.name, a))(t)
				Add(t, e, tt.name, "after")
				got := ReadAll(t, e, tt.name, 1<<20)
				if len(got) != tt.count+2 {
					t.Fatalf("%d records", len(got))
				}
				for i, r := range got[1 : tt.count+1] {
					if !bytes.Equal(r.Data, rs[i].Data) || !r.At.Equal(rs[i].At) {
						t.Fatalf("record %d is another", i)
					}
				}
				if tt.count > 8 {
					if got := Must(e.Read(t.Context(), tt.name, before.Last, h.Last, 1<<30))(t); len(got) != tt.count {
						t.Errorf("%d records at once", len(got))
					}
				}
				if tt.name == "body" {
					return // a look-up would read all of it once more
				}
				for _, i := range []int{0, tt.count / 2, tt.count - 1} {
					if r, ok := Lookup(t, e, tt.name, rs[i].Key); !ok || !bytes.Equal(r.Data, rs[i].Data) {
						t.Errorf("key %s: %v", rs[i].Key, ok)
					}
				}
			})
		}
	})
}

func (s suite) readByBytes(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		random := rand.New(rand.NewPCG(1, 2))
		var want []string
		var h engine.Head
		for i := range 80 {
			var rs []engine.Record
			for range random.IntN(4) {
				size := 1 << random.IntN(12)
				if i%40 == 0 {
					size = 1 << 21
				}
				data := fmt.Sprintf("%d%s", len(want), strings.Repeat("x", size))
				want = append(want, data)
				rs = append(rs, engine.Record{At: Now, Data: []byte(data)})
			}
			h = Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, Records: rs}))(t)
			Add(t, e, fmt.Sprint("other", i%3), "x")
		}
		for _, most := range []int{1, 3000, 70_000, 3 << 20, 1 << 30} {
			got := Texts(ReadAll(t, e, "s", most))
			if !slices.Equal(got, want) {
				t.Errorf("by %d bytes: %d records, want %d", most, len(got), len(want))
			}
		}
	})
}
