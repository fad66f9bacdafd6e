package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// filled makes a store with n records of some hundred bytes in a stream, each an append of its own. It calls each after
// each append.
func filled(t *testing.T, dir string, n int, each func()) (*pebble.Engine, []string) {
	t.Helper()
	p := enginetest.Must(pebble.Open(dir, enginetest.Logger(t)))(t)
	var want []string
	var h engine.Head
	for i := range n {
		text := fmt.Sprintf("%d %s", i, strings.Repeat(string(rune('a'+i%26)), 300))
		h = enginetest.Must(p.Append(t.Context(), "s", enginetest.One(h.Last, fmt.Sprint(i), []byte(text))))(t)
		want = append(want, text)
		each()
	}
	return p, want
}

// killed copies a store's folder, as KILL would leave it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "log")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// newest returns the newest of a folder's files with this ending.
func newest(t *testing.T, dir, ending string) string {
	t.Helper()
	files := enginetest.Must(filepath.Glob(filepath.Join(dir, "*"+ending)))(t)
	if len(files) == 0 {
		t.Fatalf("no %s", ending)
	}
	return slices.Max(files)
}

// TestTornTail cuts the write-ahead log in the middle of a record, or appends garbage to it. The records before are
// there.
func TestTornTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	wal := func(dir string) string { return newest(t, dir, ".log") }
	var ends []int // of the records in it
	p, want := filled(t, dir, 200, func() {
		log := enginetest.Must(os.ReadFile(wal(dir)))(t)
		ends = append(ends, len(bytes.TrimRight(log, "\x00"))) // without preallocated room
	})
	defer p.Close()
	whole := enginetest.Must(os.ReadFile(wal(dir)))(t)
	end, last := ends[199], ends[198]
	random := make([]byte, 5000)
	for i := range random {
		random[i] = byte(rand.N(256))
	}
	type damage struct {
		name string
		do   func([]byte) []byte
		lost int // records that may be lost
	}
	damages := []damage{
		{"none", func(b []byte) []byte { return b }, 0},
		{"zeros behind", func(b []byte) []byte { return append(b[:end:end], make([]byte, 100_000)...) }, 0},
		{"nothing behind", func(b []byte) []byte { return b[:end] }, 0},
		{"an old log's rest behind", func(b []byte) []byte { return append(b[:end:end], whole[:3000]...) }, 0},
		{"the last record is cut", func(b []byte) []byte { return b[:last+10] }, 1},
		{
			"the last record is cut, zeros behind",
			func(b []byte) []byte { return append(b[:last+10:last+10], make([]byte, 5000)...) },
			1,
		},
		{"a byte less", func(b []byte) []byte { return b[:end-1] }, 1},
	}
	for range 5 {
		n := rand.N(len(random))
		damages = append(damages, damage{
			fmt.Sprintf("%d bytes of garbage behind", n),
			func(b []byte) []byte { return append(b[:end:end], random[:n]...) },
			0,
		})
	}
	for i := range 15 {
		cut := rand.N(end)
		if i == 0 {
			cut = 0
		}
		kept, _ := slices.BinarySearch(ends, cut+1)
		damages = append(damages, damage{
			fmt.Sprintf("cut at %d", cut), func(b []byte) []byte { return b[:cut] }, 200 - kept,
		})
	}
	for _, d := range damages {
		to := killed(t, dir)
		file := wal(to)
		if err := os.WriteFile(file, d.do(bytes.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := pebble.Open(to, enginetest.Logger(t))
		if err != nil {
			t.Errorf("%s: %v", d.name, err)
			continue
		}
		got := enginetest.Texts(enginetest.ReadAll(t, q, "s", 1<<20))
		if len(got) < len(want)-d.lost || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("%s: %d of %d records are there, %d may be lost", d.name, len(got), len(want), d.lost)
		}
		enginetest.Add(t, q, "s", "next")
		if err := q.Close(); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
		q = enginetest.Must(pebble.Open(to, enginetest.Logger(t)))(t)
		if again := enginetest.Texts(enginetest.ReadAll(t, q, "s", 1<<20)); len(again) != len(got)+1 ||
			again[len(got)] != "next" {
			t.Errorf("%s: opened again, %d records, want %d", d.name, len(again), len(got)+1)
		}
		if err := q.Close(); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}

// TestFlippedBit flips bits in a table and in a file of values. A read of them returns an error, never another value.
// The rest can be read.
func TestFlippedBit(t *testing.T) {
	for _, kind := range []string{".sst", ".blob"} {
		t.Run(kind[1:], func(t *testing.T) { flipBits(t, kind) })
	}
}

func flipBits(t *testing.T, kind string) {
	dir := filepath.Join(t.TempDir(), "log")
	p, want := filled(t, dir, 300, func() {})
	if err := errors.Join(p.Flush(), p.Close()); err != nil {
		t.Fatal(err)
	}
	table := enginetest.Must(os.ReadFile(newest(t, dir, kind)))(t)
	const flips = 5
	refused, whole := 0, 0
	for i := range flips {
		to := killed(t, dir)
		at := len(table) / flips * i
		bad := bytes.Clone(table)
		bad[at] ^= 1 << rand.N(8)
		if err := os.WriteFile(newest(t, to, kind), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := pebble.Open(to, enginetest.Logger(t))
		if err != nil {
			refused++
			continue
		}
		errs := 0
		for n := at % 3; n < len(want); n += 3 { // one by one, so that some reads miss the damage
			rs, err := q.Read(t.Context(), "s", uint64(n), uint64(n+1), 1)
			if err != nil {
				errs++
			} else if len(rs) != 1 || string(rs[0].Data) != want[n] {
				t.Fatalf("byte %d: record %d is %d records and not what it was, without an error", at, n, len(rs))
			}
			r, ok, err := q.Lookup(t.Context(), "s", fmt.Sprint(n))
			if err != nil {
				errs++
			} else if !ok || string(r.Data) != want[n] {
				t.Fatalf("byte %d: key %d: %v, and no error", at, n, ok)
			}
		}
		if errs > 0 {
			refused++
		} else {
			whole++
		}
		if h, err := q.Head(t.Context(), "t"); err == nil { // it fails if the damage hides whether the stream exists
			if _, err := q.Append(t.Context(), "t", enginetest.One(h.Last, "", []byte("more"))); err != nil {
				t.Errorf("byte %d: %v", at, err)
			}
		}
		if err := q.Close(); err != nil {
			t.Errorf("byte %d: %v", at, err)
		}
	}
	t.Logf("%d flips were refused, %d did no harm", refused, whole)
	if refused < flips/2 {
		t.Errorf("only %d of %d flips were noticed", refused, flips)
	}
}
