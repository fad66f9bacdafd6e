package pebble_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/format"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

type nothing struct{}

func (nothing) Write(b []byte) (int, error) { return len(b), nil }

// TestBackup makes backups while others append. Each has all appends that were acknowledged before it, each whole and
// in order.
func TestBackup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	p := enginetest.Must(pebble.Open(dir, enginetest.Logger(t)))(t)
	const writers = 4
	var acked [writers]atomic.Int64 // appends
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			name := fmt.Sprintf("s%d", w)
			var h engine.Head
			for i := 0; ctx.Err() == nil; i++ {
				var rs []engine.Record
				for j := range 3 {
					text := fmt.Sprintf("%d.%d", i, j)
					rs = append(rs, engine.Record{
						At:   enginetest.Now,
						Key:  text,
						Data: append([]byte(text+" "), bytes.Repeat([]byte("x"), 500)...),
					})
				}
				next, err := p.Append(context.WithoutCancel(ctx), name, engine.Append{After: h.Last, Records: rs})
				if err != nil {
					t.Error(err)
					return
				}
				h = next
				acked[w].Add(1)
			}
		})
	}
	for round := range 4 {
		enginetest.Until(t, func() bool {
			for w := range writers {
				if acked[w].Load() < int64(100*(round+1)) {
					return false
				}
			}
			return true
		})
		var before [writers]int64
		for w := range writers {
			before[w] = acked[w].Load()
		}
		var b bytes.Buffer
		if err := p.Backup(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			if err := p.Flush(); err != nil { // from here on the store has tables
				t.Error(err)
			}
		}
		info := enginetest.Must(pebble.CheckBackup(t.Context(), bytes.NewReader(b.Bytes())))(t)
		if info.Files < 3 || info.Bytes == 0 || info.Made.IsZero() {
			t.Errorf("%+v", info)
		}
		to := filepath.Join(t.TempDir(), "new", "log")
		if again := enginetest.Must(pebble.Restore(t.Context(), &b, to))(t); again != info {
			t.Errorf("restored %+v, want %+v", again, info)
		}
		q := enginetest.Must(pebble.Open(to, enginetest.Logger(t)))(t)
		for w := range writers {
			name := fmt.Sprintf("s%d", w)
			got := enginetest.ReadAll(t, q, name, 1<<20)
			if len(got)%3 != 0 || int64(len(got)) < 3*before[w] {
				t.Errorf("round %d: %d records, want %d at least, and a multiple of 3", round, len(got), 3*before[w])
			}
			for i, r := range got {
				if want := fmt.Sprintf("%d.%d ", i/3, i%3); !bytes.HasPrefix(r.Data, []byte(want)) ||
					!r.At.Equal(enginetest.Now) {
					t.Fatalf("record %d is %.20q", i, r.Data)
				}
			}
			if r, ok := enginetest.Lookup(t, q, name, "7.1"); !ok || len(r.Data) == 0 {
				t.Errorf("the key of a record is lost")
			}
			enginetest.Add(t, q, name, "later")
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	stop()
	all.Wait()
	if _, err := os.Stat(pebble.CopyFolder(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy's folder: %v", err)
	}

	// A second backup is refused, a blocked one ends with its context, and Close waits for it.
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Backup(ctx, w) }()
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := p.Backup(t.Context(), nothing{}); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("a second one: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Close() }()
	cancel()
	if err := r.CloseWithError(errors.New("gone")); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("an interrupted backup is valid")
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}

	// The next Open deletes the folder that a crash leaves.
	left := filepath.Join(pebble.CopyFolder(dir), "000004.sst")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	p = enginetest.Must(pebble.Open(dir, enginetest.Logger(t)))(t)
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy's folder: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// smallBackup is a backup of a store with two records, one of them in a table.
func smallBackup(t *testing.T) []byte {
	t.Helper()
	p := enginetest.Must(pebble.Open(filepath.Join(t.TempDir(), "log"), enginetest.Logger(t)))(t)
	enginetest.Add(t, p, "s", "one")
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	enginetest.Add(t, p, "s", "two")
	var b bytes.Buffer
	if err := errors.Join(p.Backup(t.Context(), &b), p.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// rewrite copies a backup and changes its members. change returns the members that replace one.
func rewrite(t *testing.T, backup []byte, change func(h tar.Header, body []byte) []member) []byte {
	t.Helper()
	var b bytes.Buffer
	in, out := tar.NewReader(bytes.NewReader(backup)), tar.NewWriter(&b)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		for _, m := range change(*enginetest.Must(h, err)(t), enginetest.Must(io.ReadAll(in))(t)) {
			m.Size = int64(len(m.body))
			if err := out.WriteHeader(&m.Header); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Write(m.body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type member struct {
	tar.Header
	body []byte
}

const manifest = "backup.json"

func TestRestoreRefuses(t *testing.T) {
	good := smallBackup(t)
	same := func(h tar.Header, body []byte) []member { return []member{{h, body}} }
	// before inserts a member before the manifest.
	before := func(m member) func(tar.Header, []byte) []member {
		return func(h tar.Header, body []byte) []member {
			if h.Name != manifest {
				return same(h, body)
			}
			return []member{m, {h, body}}
		}
	}
	manifestOf := func(f func([]byte) []byte) func(tar.Header, []byte) []member {
		return func(h tar.Header, body []byte) []member {
			if h.Name == manifest {
				body = f(body)
			}
			return same(h, body)
		}
	}
	// replaced replaces a part of the manifest.
	replaced := func(from, to string) func(tar.Header, []byte) []member {
		return manifestOf(func(b []byte) []byte { return bytes.Replace(b, []byte(from), []byte(to), 1) })
	}
	outside := filepath.Join(t.TempDir(), "outside")
	file := func(name string) member { return member{tar.Header{Typeflag: tar.TypeReg, Name: name}, []byte("x")} }
	empty := func(h tar.Header) member { return member{h, nil} }
	for name, c := range map[string]struct {
		change func(tar.Header, []byte) []member
		want   error
	}{
		"no manifest": {func(h tar.Header, body []byte) []member {
			if h.Name == manifest {
				return nil
			}
			return same(h, body)
		}, pebble.ErrBackup},
		"a file more":     {before(file("000099.sst")), pebble.ErrBackup},
		"a folder":        {before(empty(tar.Header{Typeflag: tar.TypeDir, Name: "folder/"})), pebble.ErrBackup},
		"a path":          {before(empty(tar.Header{Typeflag: tar.TypeReg, Name: "folder/x"})), pebble.ErrBackup},
		"an upward path":  {before(file("../outside")), pebble.ErrBackup},
		"upward":          {before(file("..")), pebble.ErrBackup},
		"an absolute one": {before(file(outside)), pebble.ErrBackup},
		"a link": {
			before(empty(tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: outside})), pebble.ErrBackup,
		},
		"a hard link": {
			before(empty(tar.Header{Typeflag: tar.TypeLink, Name: "link", Linkname: outside})), pebble.ErrBackup,
		},
		"a device": {
			before(empty(tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3})), pebble.ErrBackup,
		},
		"a file twice": {func(h tar.Header, body []byte) []member {
			if h.Name == manifest {
				return same(h, body)
			}
			return []member{{h, body}, {h, body}}
		}, pebble.ErrBackup},
		"a file less": {func(h tar.Header, body []byte) []member {
			if filepath.Ext(h.Name) == ".sst" {
				return nil
			}
			return same(h, body)
		}, pebble.ErrBackup},
		"a changed file": {func(h tar.Header, body []byte) []member {
			if filepath.Ext(h.Name) == ".sst" {
				body[len(body)/2] ^= 1
			}
			return same(h, body)
		}, pebble.ErrBackup},
		"a shorter file": {func(h tar.Header, body []byte) []member {
			if filepath.Ext(h.Name) == ".log" {
				body = body[:len(body)-1]
			}
			return same(h, body)
		}, pebble.ErrBackup},
		"not JSON":       {manifestOf(func([]byte) []byte { return []byte("{") }), pebble.ErrBackup},
		"nothing in it":  {manifestOf(func([]byte) []byte { return []byte(`{"format":1,"store":2}`) }), pebble.ErrBackup},
		"a later format": {replaced(`"format":1`, `"format":2`), format.ErrLater},
		"a later store":  {replaced(`"store":`, `"store":9`), format.ErrLater},
		"something behind": {func(h tar.Header, body []byte) []member {
			return []member{{h, body}, {tar.Header{Name: "x", Typeflag: tar.TypeReg}, nil}}
		}, pebble.ErrBackup},
	} {
		refused(t, name, rewrite(t, good, c.change), c.want)
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written elsewhere: %v", err)
	}
	refused(t, "empty", nil, pebble.ErrBackup)
	refused(t, "no tar", bytes.Repeat([]byte("no tar "), 1000), pebble.ErrBackup)
	for n := 0; n < len(good); n += 1 + len(good)/25 {
		refused(t, fmt.Sprintf("cut at %d", n), good[:n], pebble.ErrBackup)
	}

	// A store that exists stays as it was.
	dir := filepath.Join(t.TempDir(), "log")
	enginetest.Must(pebble.Restore(t.Context(), bytes.NewReader(good), dir))(t)
	if _, err := pebble.Restore(t.Context(), bytes.NewReader(good), dir); !errors.Is(err, pebble.ErrExists) {
		t.Errorf("over a store: %v", err)
	}
	p := enginetest.Must(pebble.Open(dir, enginetest.Logger(t)))(t)
	if got := enginetest.Texts(enginetest.ReadAll(t, p, "s", 100)); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pebble.Restore(ctx, bytes.NewReader(good), dir+"2"); !errors.Is(err, context.Canceled) {
		t.Errorf("one that is not wanted any more: %v", err)
	}
}

// refused checks that a backup is not restored, and that no file of it stays.
func refused(t *testing.T, name string, backup []byte, want error) {
	t.Helper()
	parent := t.TempDir()
	_, err := pebble.Restore(t.Context(), bytes.NewReader(backup), filepath.Join(parent, "log"))
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", name, err, want)
	}
	if left := enginetest.Must(os.ReadDir(parent))(t); len(left) > 0 {
		t.Errorf("%s: %v is left", name, left)
	}
	if _, err := pebble.CheckBackup(t.Context(), bytes.NewReader(backup)); !errors.Is(err, want) {
		t.Errorf("%s: CheckBackup returns %v, want %v", name, err, want)
	}
}

// TestRestoreFlips flips bits of a backup. Each is noticed, unless it has no meaning.
func TestRestoreFlips(t *testing.T) {
	good := smallBackup(t)
	noticed := 0
	for range 100 {
		bad := bytes.Clone(good)
		at := rand.N(len(bad))
		bad[at] ^= 1 << rand.N(8)
		parent := t.TempDir()
		dir := filepath.Join(parent, "log")
		if _, err := pebble.Restore(t.Context(), bytes.NewReader(bad), dir); err != nil {
			if noticed++; !errors.Is(err, pebble.ErrBackup) && !errors.Is(err, format.ErrLater) {
				t.Errorf("a bit of byte %d: %v", at, err)
			}
			if left := enginetest.Must(os.ReadDir(parent))(t); len(left) > 0 {
				t.Errorf("a bit of byte %d: %v is left", at, left)
			}
			continue
		}
		p := enginetest.Must(pebble.Open(dir, enginetest.Logger(t)))(t)
		if got := fmt.Sprint(enginetest.Texts(enginetest.ReadAll(t, p, "s", 100))); got != "[one two]" {
			t.Errorf("a bit of byte %d: %s", at, got)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d of 100 were noticed", noticed)
}

// A check that is ended returns why: main prints that, and ends with its status.
func TestBackupInterrupted(t *testing.T) {
	cause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := pebble.CheckBackup(ctx, strings.NewReader("{")); !errors.Is(err, cause) {
		t.Error(err)
	}
}
