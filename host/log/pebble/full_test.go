package pebble_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// disk is a disk whose free room the test sets.
type disk struct {
	vfs.FS
	avail atomic.Int64 // bytes that it reports as free
	left  atomic.Int64 // bytes that can be written; below 0 for any number
	full  atomic.Bool  // writes fail while the file while exists
	while string
}

func newDisk() *disk {
	d := &disk{FS: vfs.Default}
	d.avail.Store(1 << 30)
	d.left.Store(-1)
	return d
}

func (d *disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(d.avail.Load()), TotalBytes: 64 << 20}, nil
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.file(f), err
}

func (d *disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, c)
	return d.file(f), err
}

func (d *disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	return d.file(f), err
}

// Lock locks nothing: a store that has failed keeps its lock until the process ends, but this test opens it again.
func (d *disk) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (d *disk) file(f vfs.File) vfs.File {
	if f == nil {
		return nil
	}
	return &diskFile{f, d}
}

type diskFile struct {
	vfs.File
	disk *disk
}

func (f *diskFile) Write(b []byte) (int, error) {
	refused := &os.PathError{Op: "write", Path: "disk", Err: syscall.ENOSPC}
	if f.disk.full.Load() {
		if _, err := os.Stat(f.disk.while); err == nil {
			return 0, refused
		}
	}
	for left := f.disk.left.Load(); left >= 0; left = f.disk.left.Load() {
		if left < int64(len(b)) {
			return 0, refused
		}
		if f.disk.left.CompareAndSwap(left, left-int64(len(b))) {
			break
		}
	}
	return f.File.Write(b)
}

func (f *diskFile) Preallocate(int64, int64) error { return nil }

// fuller is a store on a disk, with the records that it has acknowledged.
type fuller struct {
	*pebble.Engine
	t *testing.T

	mu   sync.Mutex // a goroutine of the test may append and never return
	head engine.Head
	have []string
}

// add appends a record of some KB, and notes it if it is acknowledged.
func (f *fuller) add() error {
	f.mu.Lock()
	text := fmt.Sprintf("%d %s", len(f.have), strings.Repeat("x", 3000))
	a := enginetest.One(f.head.Last, text[:10], []byte(text))
	p := f.Engine
	f.mu.Unlock()
	h, err := p.Append(f.t.Context(), "s", a)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.head, f.have = h, append(f.have, text)
	}
	return err
}

// check reads the acknowledged records. There may be one more.
func (f *fuller) check(when string) {
	f.t.Helper()
	got := enginetest.Texts(enginetest.ReadAll(f.t, f.Engine, "s", 1<<20))
	if len(got) < len(f.have) || len(got) > len(f.have)+1 {
		f.t.Fatalf("%s: %d records are there, %d were acknowledged", when, len(got), len(f.have))
	}
	for i, want := range f.have {
		if got[i] != want {
			f.t.Fatalf("%s: record %d is %.20q", when, i, got[i])
		}
	}
}

// TestDiskFills opens a store on a disk that fills up.
func TestDiskFills(t *testing.T) {
	d, dir := newDisk(), t.TempDir()
	ballast := filepath.Join(dir, "ballast")
	d.while = ballast
	f := &fuller{Engine: enginetest.Must(pebble.OpenOn(d, dir, enginetest.Logger(t)))(t), t: t}
	reopen := func(when string) {
		t.Helper()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.Engine = enginetest.Must(pebble.OpenOn(d, dir, enginetest.Logger(t)))(t)
		f.check(when)
		f.head = enginetest.Head(t, f.Engine, "s")
		if n := len(enginetest.ReadAll(t, f.Engine, "s", 1<<20)); n > len(f.have) {
			t.Logf("%s: a record that was not acknowledged is there", when)
			f.have = enginetest.Texts(enginetest.ReadAll(t, f.Engine, "s", 1<<20))
		}
	}
	good := func(when string) {
		t.Helper()
		f.LookAgain()
		for range 20 {
			if err := f.add(); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
		}
		if err := f.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if _, err := os.Stat(ballast); err != nil {
			t.Errorf("%s: the ballast: %v", when, err)
		}
	}
	full := func(when string) {
		t.Helper()
		if err := f.add(); !errors.Is(err, engine.ErrFull) {
			t.Errorf("%s: %v", when, err)
		}
		if err := f.Check(t.Context()); !errors.Is(err, engine.ErrFull) {
			t.Errorf("%s: %v", when, err)
		}
		f.check(when)
	}
	good("at first")

	// There is little room, which is for the store itself, and for deletions.
	d.avail.Store(6 << 20)
	f.LookAgain()
	full("some room")
	gone := enginetest.Must(f.Append(t.Context(), "s", engine.Append{After: f.head.Last, State: []byte("gone")}))(t)
	f.head = enginetest.Must(f.Append(t.Context(), "s", engine.Append{After: gone.Last}))(t)
	d.avail.Store(1 << 20)
	f.LookAgain()
	full("little room")
	if _, err := f.Append(t.Context(), "s", engine.Append{After: f.head.Last}); !errors.Is(err, engine.ErrFull) {
		t.Errorf("an append without records: %v", err)
	}
	if err := f.Remove(t.Context(), "s", []uint64{1 << 40}); err != nil {
		t.Errorf("removing on a full disk: %v", err)
	}
	if err := f.Delete(t.Context(), "other"); err != nil {
		t.Errorf("deleting on a full disk: %v", err)
	}
	if err := f.Backup(t.Context(), nothing{}); !errors.Is(err, engine.ErrFull) {
		t.Errorf("a backup: %v", err)
	}
	d.avail.Store(1 << 30)
	good("room again")

	// Others have filled the disk. The ballast is deleted for the appends that have begun.
	d.full.Store(true)
	if err := f.add(); err != nil {
		t.Errorf("in the ballast's place: %v", err)
	}
	if _, err := os.Stat(ballast); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the ballast: %v", err)
	}
	full("without the ballast")
	d.avail.Store(1 << 20)
	f.LookAgain()
	full("little room, without the ballast")
	reopen("opened on a full disk")
	d.full.Store(false)
	d.avail.Store(1 << 30)
	good("room again, and the ballast")

	// There is no room even without the ballast: the store fails, and works when it is opened again.
	for _, left := range []int64{0, 100, 5000, 20_000} {
		when := fmt.Sprintf("%d bytes left", left)
		d.left.Store(left)
		go func() {
			for f.add() == nil {
			}
		}()
		select {
		case <-f.Failed():
		case <-time.After(5 * time.Minute):
			t.Fatalf("%s: the store has not failed", when)
		}
		if err := f.add(); !errors.Is(err, engine.ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: an append after it: %v", when, err)
		}
		if err := f.Check(t.Context()); !errors.Is(err, engine.ErrFailed) {
			t.Errorf("%s: the check reports no error: %v", when, err)
		}
		d.left.Store(-1)
		reopen(when + ", opened again")
		good(when + ", opened again")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
