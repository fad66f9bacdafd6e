package pebble_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/format"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// TestFormat1 opens a store of format 1, which has threads only and no number of its format.
func TestFormat1(t *testing.T) {
	dir := t.TempDir()
	db := enginetest.Must(pebble.OpenRaw(dir))(t)
	set := func(key string, value []byte) {
		t.Helper()
		if err := db.Set([]byte(key), value, pebbledb.Sync); err != nil {
			t.Fatal(err)
		}
	}
	seq := func(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }
	for _, id := range []string{"t1", "t10", "t-2"} {
		for n := uint64(1); n <= 300; n++ { // seqs of more than one byte
			at := []byte(seq(uint64(enginetest.Now.UnixMilli())))
			set("e"+id+"\x00"+seq(n), append(at, fmt.Sprintf(`{"id":"%s.%d"}`, id, n)...))
			set(fmt.Sprintf("i%s\x00%s.%d", id, id, n), []byte(seq(n)))
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // in the second round the store has this format
		p := enginetest.Must(pebble.Open(dir, enginetest.Logger(t)))(t)
		var names []string
		add := func(name string, _ engine.Head) error { names = append(names, name); return nil }
		if err := p.Streams(t.Context(), add); err != nil {
			t.Error(err)
		}
		if fmt.Sprint(names) != "[arbe-thread-t-2 arbe-thread-t1 arbe-thread-t10]" {
			t.Errorf("%q", names)
		}
		for _, id := range []string{"t1", "t10", "t-2"} {
			name := "arbe-thread-" + id
			got := enginetest.ReadAll(t, p, name, 1000)
			if len(got) != 300+round {
				t.Fatalf("%s has %d records", id, len(got))
			}
			for i, r := range got[:300] {
				if want := fmt.Sprintf(`{"id":"%s.%d"}`, id, i+1); string(r.Data) != want || r.Seq != uint64(i+1) ||
					!r.At.Equal(enginetest.Now) {
					t.Fatalf("record %d of %s: %+v", i, id, r)
				}
			}
			if r, ok := enginetest.Lookup(t, p, name, id+".256"); !ok || r.Seq != 256 {
				t.Errorf("its key: %+v, %v", r, ok)
			}
			if h := enginetest.Add(t, p, name, fmt.Sprintf(`{"n":%d}`, round)); h.Data != uint64(301+round) {
				t.Errorf("%s: head %+v", id, h)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	db = enginetest.Must(pebble.OpenRaw(dir))(t)
	stamp, closer, err := db.Get([]byte("F"))
	if err != nil || string(stamp) != fmt.Sprint(pebble.Format) {
		t.Errorf("the stamp is %q, %v", stamp, err)
	}
	if err := errors.Join(closer.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}

// TestLaterFormat opens a store of a later program. Open fails, and the store stays as it was.
func TestLaterFormat(t *testing.T) {
	for stamp, want := range map[string]error{"3": format.ErrLater, "1000": format.ErrLater, "": nil, "two": nil} {
		dir := t.TempDir()
		db := enginetest.Must(pebble.OpenRaw(dir))(t)
		err := errors.Join(
			db.Set([]byte("F"), []byte(stamp), pebbledb.Sync),
			db.Set([]byte("x"), []byte("a key of an unknown kind"), pebbledb.Sync),
			db.Close(),
		)
		if err != nil {
			t.Fatal(err)
		}
		before := contents(t, dir)
		_, err = pebble.Open(dir, enginetest.Logger(t))
		if err == nil || want != nil &&
			(!errors.Is(err, want) || !strings.Contains(err.Error(), "(format "+stamp+"; this one knows 2): upgrade")) {
			t.Errorf("format %q: %v", stamp, err)
		}
		if after := contents(t, dir); after != before {
			t.Errorf("format %q: %s, was %s", stamp, after, before)
		}
	}
}

// TestStoreFormat opens a store whose files are of a later Pebble, and one of the newest that this one can read. The
// number that new stores get is raised by hand, one release after the library's.
func TestStoreFormat(t *testing.T) {
	if pebble.StoreFormat != 24 || pebble.StoreFormat > pebbledb.FormatNewest {
		t.Errorf("stores are written in %d; the library's newest is %d", pebble.StoreFormat, pebbledb.FormatNewest)
	}
	dir := t.TempDir()
	db, err := pebbledb.Open(dir, &pebbledb.Options{FormatMajorVersion: pebbledb.FormatNewest})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	e := enginetest.Must(pebble.Open(dir, enginetest.Logger(t)))(t)
	enginetest.Add(t, e, "s", "x")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	m, had, err := atomicfs.LocateMarker(vfs.Default, dir, pebble.StoreMarker)
	if err != nil || had == "" {
		t.Fatalf("the store's format is %q, %v", had, err)
	}
	if err := errors.Join(m.Move("999"), m.Close()); err != nil {
		t.Fatal(err)
	}
	before := listing(t, dir)
	_, err = pebble.Open(dir, enginetest.Logger(t))
	if !errors.Is(err, format.ErrLater) || !strings.Contains(err.Error(), "(format 999; this one knows ") {
		t.Errorf("a later store: %v", err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the store has %s, had %s", after, before)
	}
}

// listing has the names and sizes of a folder's files.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range enginetest.Must(os.ReadDir(dir))(t) {
		info := enginetest.Must(e.Info())(t)
		fmt.Fprintln(&b, e.Name(), info.Size())
	}
	return b.String()
}

// contents is a digest of all keys and values of a store.
func contents(t *testing.T, dir string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "ballast")); err == nil {
		t.Error("a store that was refused has a ballast")
	}
	db := enginetest.Must(pebble.OpenRaw(dir))(t)
	iter := enginetest.Must(db.NewIter(nil))(t)
	sum := sha256.New()
	n := 0
	for ok := iter.First(); ok; ok = iter.Next() {
		fmt.Fprintf(sum, "%q %q\n", iter.Key(), iter.Value())
		n++
	}
	if err := errors.Join(iter.Close(), db.Close()); err != nil {
		t.Error(err)
	}
	return fmt.Sprintf("%d keys %x", n, sum.Sum(nil))
}
