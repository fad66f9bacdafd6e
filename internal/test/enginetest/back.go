package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

// readBack compares backward reads with the whole stream: among records of other streams, gaps of controls, appends of
// several records, one of several messages, and removed records.
func (s suite) readBack(t *testing.T) {
	s.once(t, func(t *testing.T, e log.Engine) {
		if got := Must(e.ReadBack(t.Context(), "s", 100, 10, 1000))(t); len(got) != 0 {
			t.Errorf("of a stream that does not exist: %q", Texts(got))
		}
		random := rand.New(rand.NewPCG(3, 4))
		var h engine.Head
		var seqs []uint64
		number := 0
		for i := range 150 {
			rs := make([]engine.Record, random.IntN(4))
			size := 20
			if i == 70 {
				rs, size = make([]engine.Record, 1), 5<<18
			}
			for j := range rs {
				data := fmt.Sprintf("%d %s", number, strings.Repeat("x", size))
				rs[j] = engine.Record{At: Now, Key: fmt.Sprint("k", number), Data: []byte(data)}
				number++
			}
			h = Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, Records: rs, State: []byte("s")}))(t)
			seqs = append(seqs, h.Last)
			for j := range random.IntN(3) {
				Add(t, e, fmt.Sprint("other", j), fmt.Sprint("x", i))
			}
			if i%50 == 30 { // a gap, of the stream's own and of others
				for range 100 {
					h = Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, State: []byte("s")}))(t)
				}
				for j := range 100 {
					Add(t, e, "gap", fmt.Sprintf("%d.%d", i, j))
				}
			}
		}
		if err := e.Remove(t.Context(), "s", append(seqs[20:40:40], seqs[100:103]...)); err != nil {
			t.Fatal(err)
		}
		h = Head(t, e, "s")
		all := ReadAll(t, e, "s", 1<<20)
		for _, most := range []int{1, 500, 5 << 20} {
			for _, n := range []int{1, 3, 70, 10_000} {
				if most*n < 1000 && n == 1 { // single appends are slow, and n = 3 has them, too
					continue
				}
				checkBack(t, e, "s", all, h.Data, n, most)
			}
		}
		// From every append, and from between them.
		for i := 0; i < len(all); i += 7 {
			for _, upTo := range []uint64{all[i].Seq - 1, all[i].Seq, all[i].Seq + 1} {
				got := Must(e.ReadBack(t.Context(), "s", upTo, 5, 1<<20))(t)
				end, _ := slices.BinarySearchFunc(all, upTo+1, func(r engine.Record, seq uint64) int {
					if r.Seq < seq {
						return -1
					}
					return 1
				})
				want := all[max(0, end-len(got)):end]
				if !slices.Equal(Texts(got), Texts(want)) || len(got) < min(5, end) && size(got) < 1<<20 {
					t.Errorf("up to %d: %d records, want the %d before %d", upTo, len(got), min(5, end), end)
				}
			}
		}
	})
}

// checkBack reads a whole stream back, and checks the contract of ReadBack.
func checkBack(t *testing.T, e log.Engine, stream string, all []engine.Record, upTo uint64, n, most int) {
	t.Helper()
	left := all
	for {
		got := Must(e.ReadBack(t.Context(), stream, upTo, n, most))(t)
		if len(got) == 0 {
			break
		}
		if len(got) > len(left) || !slices.Equal(Texts(got), Texts(left[len(left)-len(got):])) {
			t.Fatalf("%d, %d bytes, up to %d: %d records are not the last ones", n, most, upTo, len(got))
		}
		for i, r := range got {
			if r.Seq != left[len(left)-len(got)+i].Seq {
				t.Fatalf("%d, %d bytes: seq %d is another", n, most, r.Seq)
			}
		}
		left = left[:len(left)-len(got)]
		if len(left) > 0 && (left[len(left)-1].Seq == got[0].Seq || len(got) < n && size(got) < most) {
			t.Fatalf(
				"%d, %d bytes, up to %d: %d records of %d bytes, and there are more",
				n,
				most,
				upTo,
				len(got),
				size(got),
			)
		}
		upTo = got[0].Seq - 1
	}
	if len(left) > 0 {
		t.Errorf("%d, %d bytes: %d records are missing", n, most, len(left))
	}
}

func size(rs []engine.Record) (n int) {
	for _, r := range rs {
		n += len(r.Data)
	}
	return n
}
