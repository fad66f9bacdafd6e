package seal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/control/seal"
)

var at = seal.Place{House: "house1", ID: "id1", Name: "API_KEY"}

// newFile makes a keyset in a file.
func newFile(t *testing.T) seal.File {
	t.Helper()
	f := seal.File{Path: filepath.Join(t.TempDir(), "keys.json")}
	if err := f.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

func newSealer(t *testing.T, f seal.File) *seal.Sealer {
	t.Helper()
	s, err := seal.New(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPlace copies a sealed value to other places: it opens at its own alone.
func TestPlace(t *testing.T) {
	s := newSealer(t, newFile(t))
	for _, row := range []struct{ from, to seal.Place }{
		{at, at},
		{at, seal.Place{House: "house2", ID: "id1", Name: "API_KEY"}},
		{at, seal.Place{House: "house1", ID: "id2", Name: "API_KEY"}},
		{at, seal.Place{House: "house1", ID: "id1", Name: "API_KEY2"}},
		{at, seal.Place{House: "house1i", ID: "d1", Name: "API_KEY"}},
		{at, seal.Place{House: "house1", ID: "id1A", Name: "PI_KEY"}},
		{at, seal.Place{House: "id1", ID: "house1", Name: "API_KEY"}},
		{
			seal.Place{House: "a", ID: "b\x00\x00\x00\x01c", Name: "d"},
			seal.Place{House: "a\x00\x00\x00\x01b", ID: "c", Name: "d"},
		},
	} {
		sealed, err := s.Seal(row.from, []byte("value"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := s.Open(t.Context(), row.to, sealed)
		if row.from == row.to {
			if err != nil || v.Reveal() != "value" {
				t.Errorf("%v: %q, %v", row.to, v.Reveal(), err)
			}
		} else if !errors.Is(err, seal.ErrForeign) || v.Reveal() != "" {
			t.Errorf("a value of %v opens at %v: %q, %v", row.from, row.to, v.Reveal(), err)
		}
	}
}

func TestLimits(t *testing.T) {
	s := newSealer(t, newFile(t))
	for _, row := range []struct {
		at   seal.Place
		size int
		want error
	}{
		{at, 0, seal.ErrEmpty},
		{at, 1, nil},
		{at, seal.MaxValue, nil},
		{at, seal.MaxValue + 1, seal.ErrTooLarge},
		{seal.Place{ID: "i", Name: "n"}, 1, seal.ErrPlace},
		{seal.Place{House: "h", Name: "n"}, 1, seal.ErrPlace},
		{seal.Place{House: "h", ID: "i"}, 1, seal.ErrPlace},
		{seal.Place{House: "h", ID: "i", Name: strings.Repeat("n", seal.MaxPart+1)}, 1, seal.ErrPlace},
	} {
		value := bytes.Repeat([]byte{0xff}, row.size)
		sealed, err := s.Seal(row.at, value)
		if !errors.Is(err, row.want) || err != nil && !strings.Contains(err.Error(), row.at.String()) {
			t.Errorf("%d bytes at %v: %v, want %v and the place", row.size, row.at, err, row.want)
		}
		if err != nil {
			continue
		}
		if v, err := s.Open(t.Context(), row.at, sealed); err != nil || v.Reveal() != string(value) {
			t.Errorf("%d bytes come back as %d, %v", row.size, len(v.Reveal()), err)
		}
	}
}

// TestDamage flips each bit of a sealed value, and cuts it everywhere.
func TestDamage(t *testing.T) {
	s := newSealer(t, newFile(t))
	sealed, err := s.Seal(at, []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		v, err := s.Open(t.Context(), at, b)
		if v.Reveal() != "" || !errors.Is(err, seal.ErrForeign) && !errors.Is(err, seal.ErrUnknownKey) {
			t.Errorf("%s: %q, %v", what, v.Reveal(), err)
		}
	}
	for i := range len(sealed) * 8 {
		b := bytes.Clone(sealed)
		b[i/8] ^= 1 << (i % 8)
		check(fmt.Sprintf("bit %d", i), b)
	}
	for n := range sealed {
		check(fmt.Sprintf("%d bytes", n), sealed[:n])
	}
	check("nothing", nil)
	if _, err := newSealer(t, newFile(t)).Open(t.Context(), at, sealed); !errors.Is(err, seal.ErrUnknownKey) {
		t.Errorf("with another keyset: %v", err)
	}
}

// TestNoValue looks for a value in whatever of this package can get into a log.
func TestNoValue(t *testing.T) {
	const value = "sk-live-8a7b6c5d4e3f"
	s := newSealer(t, newFile(t))
	sealed, err := s.Seal(at, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Open(t.Context(), at, sealed)
	if err != nil {
		t.Fatal(err)
	}
	other := at
	other.Name = "OTHER"
	_, foreign := s.Open(t.Context(), other, sealed)
	_, cut := s.Open(t.Context(), at, sealed[:len(sealed)-1])
	_, large := s.Seal(at, []byte(strings.Repeat(value, 5000)))
	_, placeless := s.Seal(seal.Place{}, []byte(value))
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		l := slog.New(h)
		for _, what := range []any{v, &v, []seal.Value{v}, s, foreign, cut, large, placeless, at, sealed} {
			l.Info("logged", "what", what)
			fmt.Fprintf(&log, "%v %+v %#v %s %q %x %d\n", what, what, what, what, what, what, what)
			if b, err := json.Marshal(what); err == nil {
				log.Write(b)
			}
		}
	}
	for _, form := range []string{
		value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value), fmt.Sprint([]byte(value)),
		strings.Trim(fmt.Sprint([]byte(value)), "[]"),
	} {
		if strings.Contains(log.String(), form) {
			t.Errorf("a log has the value as %q", form)
		}
	}
	if !strings.Contains(log.String(), "[secret]") || !strings.Contains(foreign.Error(), `"OTHER"`) {
		t.Errorf("want [secret] and the place: %v", foreign)
	}
}

// TestRotation rotates the keyset of two processes while both seal and open values. Each value opens in both, and in
// the end all are sealed with the newest key.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t)
		processes := []*seal.Sealer{newSealer(t, f), newSealer(t, f)}
		var mu sync.Mutex
		rows := map[seal.Place][]byte{}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for n, s := range processes {
			for k := range 4 {
				all.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						at := seal.Place{House: fmt.Sprint(n), ID: fmt.Sprint(k, ".", i%10), Name: "N"}
						sealed, err := s.Seal(at, []byte(at.String()))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						rows[at] = sealed
						mu.Unlock()
						v, err := processes[1-n].Open(ctx, at, sealed) // the other process may lack the key
						if err != nil || v.Reveal() != at.String() {
							t.Errorf("%v: %q, %v", at, v.Reveal(), err)
							return
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
		}
		for range 5 {
			time.Sleep(250 * time.Millisecond)
			if err := f.Rotate(ctx); err != nil {
				t.Fatal(err)
			}
			if err := processes[0].Read(ctx); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		cancel()
		all.Wait()
		if keys, err := f.Keys(t.Context()); err != nil || len(keys) != 6 || !keys[5].Primary {
			t.Errorf("keys %v, %v", keys, err)
		}
		s := newSealer(t, f)
		old := 0
		for at, sealed := range rows {
			if seal.KeyOf(sealed) != s.Primary() {
				old++
			}
			again, err := s.Reseal(t.Context(), at, sealed)
			if err != nil || seal.KeyOf(again) != s.Primary() {
				t.Fatalf("%v: sealed again by %s: %v", at, seal.KeyOf(again), err)
			}
			if v, err := processes[1].Open(t.Context(), at, again); err != nil || v.Reveal() != at.String() {
				t.Errorf("%v, sealed again: %q, %v", at, v.Reveal(), err)
			}
		}
		if len(rows) != 80 || old == len(rows) {
			t.Errorf("%d values, %d of them of an old key", len(rows), old)
		}
	})
}
