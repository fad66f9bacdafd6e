package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
)

func (s suite) lookup(t *testing.T) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		keys := []string{"a", "a\x00", "é/*.>", strings.Repeat("k", 300)}
		var h engine.Head
		for _, k := range keys {
			h = Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, Records: []engine.Record{
				{At: time.UnixMilli(1000), Key: k, Data: []byte("data of " + k)},
				{At: time.UnixMilli(1000), Data: []byte("no key")},
			}}))(t)
		}
		check := func(e log.Engine) {
			t.Helper()
			for _, k := range keys {
				if r, ok := Lookup(t, e, "s", k); !ok || string(r.Data) != "data of "+k || r.Seq == 0 ||
					!r.At.Equal(time.UnixMilli(1000)) {
					t.Errorf("key %q: %v, %+v", k, ok, r)
				}
			}
			for _, k := range []string{"", "b", "A", "a\x00\x00"} {
				if r, ok := Lookup(t, e, "s", k); ok {
					t.Errorf("key %q: %+v", k, r)
				}
			}
			if r, ok := Lookup(t, e, "t", "a"); ok {
				t.Errorf("of another stream: %+v", r)
			}
		}
		check(e)
		e = open()
		check(e)
		if got := Head(t, e, "s"); !cmp.Equal(got, h) {
			t.Errorf("head %+v, was %+v", got, h)
		}
	})
}

func (s suite) values(t *testing.T) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		var h engine.Head
		set := func(values ...string) {
			t.Helper()
			m := map[string][]byte{}
			for _, v := range values {
				name, value, ok := strings.Cut(v, "=")
				if m[name] = nil; ok {
					m[name] = []byte(value)
				}
			}
			h = Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, State: []byte("x"), Values: m}))(t)
		}
		check := func(prefix string, want ...string) {
			t.Helper()
			var got []string
			for name, value := range Must(e.Values(t.Context(), "s", prefix))(t) {
				got = append(got, name+"="+string(value))
				if one := Must(e.Value(t.Context(), "s", name))(t); one == nil || string(one) != string(value) {
					t.Errorf("%q is %q, and %q among others", name, one, value)
				}
			}
			for _, name := range []string{"p/", "p/aa", "none"} {
				if one := Must(e.Value(t.Context(), "s", name))(t); one != nil {
					t.Errorf("%q is %q", name, one)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("with %q: %q, want %q", prefix, got, want)
			}
		}
		check("")
		set("p/a=1", "p/b=2", "q=3", "empty=", "p=0")
		check("p/", "p/a=1", "p/b=2")
		set("p/a=4", "p/b", "none")
		check("p/", "p/a=4")
		check("", "empty=", "p/a=4", "p=0", "q=3")
		check("r")
		e = open()
		check("", "empty=", "p/a=4", "p=0", "q=3")
		set("p/a", "p/c=5")
		check("p", "p/c=5", "p=0")
	})
}

func (s suite) state(t *testing.T) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		var h engine.Head
		for _, state := range [][]byte{[]byte("one"), []byte("two"), {}, nil, bytes.Repeat([]byte("s"), 10_000), {0}} {
			h = Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, State: state}))(t)
			if (h.State == nil) != (state == nil) || !bytes.Equal(h.State, state) || h.Exists() != (state != nil) {
				t.Errorf("%.10q: got %.10q, exists %v", state, h.State, h.Exists())
			}
			for range 2 {
				if got := Head(t, e, "s"); !cmp.Equal(got, h) {
					t.Errorf("%.10q: head %+v, want %+v", state, got, h)
				}
				e = open()
			}
		}
	})
}

func (s suite) remove(t *testing.T) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		var seqs []uint64
		var h engine.Head
		for i := range 10 {
			size := 10
			if i == 4 {
				size = 3 << 20
			}
			h = Must(e.Append(t.Context(), "s", engine.Append{
				After: h.Last,
				Records: []engine.Record{
					{At: Now, Key: fmt.Sprint("k", i), Data: bytes.Repeat([]byte{byte('0' + i)}, size)},
				},
				State: []byte("state"),
				Values: map[string][]byte{
					"last":               fmt.Append(nil, i),
					fmt.Sprint("v", i):   {'v'},
					fmt.Sprint("v", i-1): nil,
				},
			}))(t)
			seqs = append(seqs, h.Last)
		}
		before := Must(e.Values(t.Context(), "s", ""))(t)
		if err := e.Remove(t.Context(), "s", append(seqs[2:6:6], seqs[9], seqs[9]+1000)); err != nil {
			t.Fatal(err)
		}
		check := func(e log.Engine) {
			t.Helper()
			var got string
			for _, r := range ReadAll(t, e, "s", 100) {
				got += string(r.Data[:1])
			}
			if got != "016789" {
				t.Errorf("what is left: %s", got)
			}
			for i := range 10 {
				r, ok := Lookup(t, e, "s", fmt.Sprint("k", i))
				if gone := i >= 2 && i < 6; !ok || r.Seq != seqs[i] || (len(r.Data) == 0) != gone {
					t.Errorf("key %d: %v, at %d with %.10q", i, ok, r.Seq, r.Data)
				}
			}
			if d := cmp.Diff(Must(e.Values(t.Context(), "s", ""))(t), before); d != "" {
				t.Error(d)
			}
			if now := Head(t, e, "s"); now.Data != h.Data || string(now.State) != "state" || now.Last < h.Last {
				t.Errorf("head %+v, was %+v", now, h)
			}
		}
		check(e)
		e = open()
		check(e)
		if err := e.Remove(t.Context(), "s", seqs[2:6]); err != nil {
			t.Errorf("again: %v", err)
		}
		check(e)
		if err := e.Remove(t.Context(), "none", []uint64{1}); err != nil {
			t.Errorf("from a stream that does not exist: %v", err)
		}
		h = Add(t, e, "s", "more")
		if err := e.Remove(t.Context(), "s", append(seqs, h.Last)); err != nil {
			t.Fatal(err)
		}
		if h2 := Add(t, e, "s", "and more"); h2.Last <= h.Last {
			t.Errorf("%+v after %+v", h2, h)
		}
		if _, ok := Lookup(t, e, "s", "k0"); !ok {
			t.Error("a key of the first record is not known any more")
		}
	})
}

func (s suite) delete(t *testing.T) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		for round := range 3 {
			h := Head(t, e, "s")
			a := One(h.Last, fmt.Sprint("k", round), []byte("x"))
			a.State, a.Values = []byte("s"), map[string][]byte{fmt.Sprint("v", round): []byte("v")}
			h2 := Must(e.Append(t.Context(), "s", a))(t)
			if h2.Last <= h.Last {
				t.Errorf("%+v after %+v", h2, h)
			}
			if v := Must(e.Values(t.Context(), "s", ""))(t); len(v) != 1 {
				t.Errorf("round %d: values %q", round, v)
			}
			if _, ok := Lookup(t, e, "s", fmt.Sprint("k", round-1)); ok {
				t.Errorf("round %d: a key of before", round)
			}
			Add(t, e, "t", fmt.Sprint("stays", round))
			if err := e.Delete(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			if round == 1 {
				e = open()
			}
			if h := Head(t, e, "s"); h.Exists() {
				t.Errorf("round %d: it is still there: %+v", round, h)
			}
			if got := Must(e.Read(t.Context(), "s", 0, h2.Last, 1000))(t); len(got) != 0 {
				t.Errorf("round %d: read %q", round, Texts(got))
			}
			if _, ok := Lookup(t, e, "s", fmt.Sprint("k", round)); ok {
				t.Errorf("round %d: its key is still there", round)
			}
			if v := Must(e.Values(t.Context(), "s", ""))(t); len(v) != 0 {
				t.Errorf("round %d: values %q", round, v)
			}
			seen := ""
			add := func(name string, _ engine.Head) error { seen += name; return nil }
			if err := e.Streams(t.Context(), add); err != nil || seen != "t" {
				t.Errorf("round %d: streams %q, %v", round, seen, err)
			}
		}
		if err := e.Delete(t.Context(), "none"); err != nil {
			t.Errorf("a stream that does not exist: %v", err)
		}
		if got := ReadAll(t, e, "t", 1000); len(got) != 3 {
			t.Errorf("its neighbour has %d records", len(got))
		}
	})
}

// retire deletes a stream whose name is not given again.
func (s suite) retire(t *testing.T) {
	s.reopening(t, func(t *testing.T, open func() log.Engine) {
		e := open()
		Add(t, e, "t", "stays")
		a := One(0, "k", []byte("x"))
		a.State, a.Values = []byte("s"), map[string][]byte{"v": []byte("v")}
		h := Must(e.Append(t.Context(), "s", a))(t)
		h = Must(e.Append(t.Context(), "s", engine.Append{After: h.Last, State: []byte("gone")}))(t)
		for _, name := range []string{"s", "none"} {
			if err := e.Retire(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 3 { // as it is in the engine's memory, as it is stored, and retired again
			now := Head(t, e, "s")
			if now.Exists() || now.Last < h.Last {
				t.Errorf("round %d: %+v after %+v", round, now, h)
			}
			if _, err := e.Append(t.Context(), "s", One(0, "k", []byte("x"))); !errors.Is(err, engine.ErrConflict) {
				t.Errorf("round %d: an append to a stream that never was: %v", round, err)
			}
			if got := Must(e.Read(t.Context(), "s", 0, now.Last, 1000))(t); len(got) != 0 {
				t.Errorf("round %d: read %q", round, Texts(got))
			}
			if _, ok := Lookup(t, e, "s", "k"); ok {
				t.Errorf("round %d: its key is still there", round)
			}
			if v := Must(e.Values(t.Context(), "s", ""))(t); len(v) != 0 {
				t.Errorf("round %d: values %q", round, v)
			}
			seen := ""
			add := func(name string, _ engine.Head) error { seen += name; return nil }
			if err := e.Streams(t.Context(), add); err != nil || seen != "t" {
				t.Errorf("round %d: streams %q, %v", round, seen, err)
			}
			if h := Head(t, e, "none"); h.Last != 0 {
				t.Errorf("round %d: a stream that never was: %+v", round, h)
			}
			if round == 0 {
				e = open()
			} else if err := e.Retire(t.Context(), "s"); err != nil {
				t.Error(err)
			}
		}
		if got := ReadAll(t, e, "t", 1000); len(got) != 1 {
			t.Errorf("its neighbour has %d records", len(got))
		}
	})
}
