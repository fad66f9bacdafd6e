package pebble_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// diskErrors are the operations that fail, by kind of file, and how many of them succeed at most before one fails.
var diskErrors = []struct {
	name  string
	skip  int
	match func(op errorfs.Op, base string) bool
}{
	{"wal create", 4, func(op errorfs.Op, base string) bool {
		return isWAL(base) && (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite)
	}},
	{"wal write", 200, func(op errorfs.Op, base string) bool { return isWAL(base) && op.Kind == errorfs.OpFileWrite }},
	{"wal sync", 200, func(op errorfs.Op, base string) bool { return isWAL(base) && isSync(op) }},
	{"wal close", 4, func(op errorfs.Op, base string) bool { return isWAL(base) && op.Kind == errorfs.OpFileClose }},
	{"manifest", 8, func(op errorfs.Op, base string) bool { return isManifest(base) && isWrite(op) }},
	{"manifest sync", 4, func(op errorfs.Op, base string) bool { return isManifest(base) && isSync(op) }},
	{"blob", 40, func(op errorfs.Op, base string) bool { return isBlob(base) && isWrite(op) }},
	{"blob create", 4, func(op errorfs.Op, base string) bool { return isBlob(base) && op.Kind == errorfs.OpCreate }},
	{"blob sync", 4, func(op errorfs.Op, base string) bool { return isBlob(base) && isSync(op) }},
	{"table", 20, func(op errorfs.Op, base string) bool { return isTable(base) && isWrite(op) }},
	{"table sync", 4, func(op errorfs.Op, base string) bool { return isTable(base) && isSync(op) }},
	{"folder sync", 8, func(op errorfs.Op, base string) bool { return base == "log" && isSync(op) }},
	{"anything", 500, func(op errorfs.Op, _ string) bool { return isWrite(op) }},
}

func isWAL(base string) bool      { return filepath.Ext(base) == ".log" }
func isManifest(base string) bool { return strings.HasPrefix(base, "MANIFEST-") }
func isBlob(base string) bool     { return filepath.Ext(base) == ".blob" }
func isTable(base string) bool    { return filepath.Ext(base) == ".sst" }

func isSync(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
}

func isWrite(op errorfs.Op) bool {
	return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpLock && op.Kind != errorfs.OpMkdirAll
}

// faulty is a disk in memory whose operations fail on demand.
type faulty struct {
	vfs.FS
	mem *vfs.MemFS

	mu    sync.Mutex
	match func(op errorfs.Op, base string) bool
	skip  int // number of matching operations that succeed
	times int // number of those that fail then
	err   error
	hits  int
}

func newFaulty(mem *vfs.MemFS) *faulty {
	d := &faulty{mem: mem}
	d.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(d.inject))
	return d
}

func (d *faulty) GetDiskUsage(string) (vfs.DiskUsage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hits > 0 && d.times > 0 && d.err == syscall.ENOSPC {
		return vfs.DiskUsage{TotalBytes: 16 << 20}, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 16 << 20}, nil
}

func (d *faulty) inject(op errorfs.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.match == nil || !d.match(op, filepath.Base(op.Path)) {
		return nil
	}
	if d.skip > 0 {
		d.skip--
		return nil
	}
	if d.times == 0 {
		return nil
	}
	d.times--
	d.hits++
	return &os.PathError{Op: "test", Path: filepath.Base(op.Path), Err: d.err}
}

// mend ends the failures. A store that has failed stays in memory, and what it does in the background it tries again at
// once, for ever, at the cost of all tests that follow.
func (d *faulty) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.match = nil
}

// source is a stream under test, with the result of each append to it.
type source struct {
	name    string
	appends chan struct{} // holds one token while an append has begun since the last read

	mu      sync.Mutex
	acked   []string // in order
	pending []string // of the append without an answer
	refused []string
	seen    int // number of records that were read
}

// write appends until the store fails, or n times. It never returns if the store does not answer.
func (s *source) write(t *testing.T, p *pebble.Engine, rng *rand.Rand, n int) {
	h, err := p.Head(t.Context(), s.name)
	for i := 0; i < n && err == nil; i++ {
		a := engine.Append{After: h.Last}
		var texts []string
		for range 1 + rng.IntN(4) {
			fill := strings.Repeat("x", rng.IntN(1<<(5+rng.IntN(11))))
			text := fmt.Sprintf("%s-%d-%d-%d %s", s.name, h.Last, i, len(texts), fill)
			key, _, _ := strings.Cut(text, " ")
			texts = append(texts, text)
			a.Records = append(a.Records, engine.Record{At: enginetest.Now, Key: key, Data: []byte(text)})
		}
		s.mu.Lock()
		s.pending = texts
		s.mu.Unlock()
		select {
		case s.appends <- struct{}{}:
		default:
		}
		var after engine.Head
		after, err = p.Append(t.Context(), s.name, a)
		s.mu.Lock()
		s.pending = nil
		switch {
		case err == nil:
			s.acked, h = append(s.acked, texts...), after
		case errors.Is(err, engine.ErrFull):
			s.refused, err = append(s.refused, texts...), nil
		default:
			s.refused = append(s.refused, texts...)
		}
		s.mu.Unlock()
	}
	if err != nil && !errors.Is(err, engine.ErrFailed) {
		t.Errorf("%s: %v", s.name, err)
	}
}

// read reads the stream beside its appends until the store fails or stop is closed: what is new, and now and then all.
func (s *source) read(t *testing.T, p *pebble.Engine, stop <-chan struct{}) {
	n, after := 0, uint64(0)
	for round := 0; ; round++ {
		select {
		case <-stop:
			return
		case <-s.appends:
		}
		if round%16 == 0 {
			n, after = 0, 0
		}
		h, err := p.Head(t.Context(), s.name)
		for err == nil && after < h.Data {
			var rs []engine.Record
			if rs, err = p.Read(t.Context(), s.name, after, h.Last, 1<<20); err == nil && len(rs) > 0 {
				after, n = rs[len(rs)-1].Seq, n+len(rs)
			}
		}
		if err != nil {
			if !errors.Is(err, engine.ErrFailed) {
				t.Errorf("read %s: %v", s.name, err)
			}
			return
		}
		s.mu.Lock()
		s.seen = max(s.seen, n)
		s.mu.Unlock()
	}
}

// check compares the stream with the results of its appends: all records that were acknowledged or read are there, in
// order, those of an append without an answer all or none, and no others.
func (s *source) check(t *testing.T, p *pebble.Engine) {
	t.Helper()
	got := enginetest.Texts(enginetest.ReadAll(t, p, s.name, 1<<20))
	want := s.acked
	if len(got) == len(s.acked)+len(s.pending) {
		want = slices.Concat(s.acked, s.pending)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s has %d records, %d were acknowledged, %d are in doubt, %d were refused",
			s.name, len(got), len(s.acked), len(s.pending), len(s.refused))
	}
	if s.seen > len(got) {
		t.Fatalf("%s has %d records, %d were read before", s.name, len(got), s.seen)
	}
	for _, text := range s.refused {
		key, _, _ := strings.Cut(text, " ")
		if _, ok := enginetest.Lookup(t, p, s.name, key); ok {
			t.Fatalf("%s: %s was refused, and is there", s.name, key)
		}
	}
	s.acked, s.pending = got, nil
}

// errored causes one disk error, and returns its outcome.
func errored(t *testing.T, seed uint64) (outcome string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	mem := vfs.NewCrashableMem()
	dir := filepath.Join(t.TempDir(), "log")
	if err := mem.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(dir); ; d = filepath.Dir(d) {
		f := enginetest.Must(mem.OpenDir(d))(t)
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if d == "/" {
			break
		}
	}
	kind := diskErrors[rng.IntN(len(diskErrors))]
	failing := newFaulty(mem)
	failing.err, failing.times, failing.skip = syscall.EIO, 1, rng.IntN(kind.skip)
	if rng.IntN(4) == 0 {
		failing.err = syscall.ENOSPC
	}
	if rng.IntN(3) == 0 {
		failing.times = 1 << 30
	}
	atOpen := rng.IntN(6) == 0
	if atOpen {
		failing.skip = min(failing.skip, rng.IntN(20))
	}
	what := fmt.Sprintf("%s %v, %d times after %d", kind.name, failing.err, failing.times, failing.skip)
	t.Logf("%s, at open: %v", what, atOpen)
	log := slog.New(slog.DiscardHandler)

	var sources []*source
	for _, name := range []string{"a", "arbe-thread-b", "c"} {
		sources = append(sources, &source{name: name, appends: make(chan struct{}, 1)})
	}
	reopen := func(d *faulty) *pebble.Engine {
		t.Helper()
		p, err := pebble.OpenOn(d, dir, log)
		if err != nil {
			t.Fatalf("%s: opened again: %v", what, err)
		}
		for _, s := range sources {
			s.check(t, p)
		}
		return p
	}
	if atOpen { // so that Open has a log to replay
		p := reopen(failing)
		for _, s := range sources {
			s.write(t, p, rng, 20)
		}
		mem = mem.CrashClone(vfs.CrashCloneCfg{})
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		old := failing
		failing = newFaulty(mem)
		failing.err, failing.times, failing.skip = old.err, old.times, old.skip
	}
	failing.mu.Lock()
	if atOpen {
		failing.match = kind.match
	}
	failing.mu.Unlock()
	p, err := pebble.OpenOn(failing, dir, log)
	failing.mu.Lock()
	failing.match = kind.match
	failing.mu.Unlock()
	defer failing.mend()
	switch {
	case err != nil && (!atOpen || failing.hits == 0):
		t.Fatalf("%s: open: %v", what, err)
	case err != nil:
		outcome = "refused to open"
	default:
		outcome = "went on"
		p := p // not the store that is opened later
		stop, done := make(chan struct{}), make(chan struct{})
		var all, readers sync.WaitGroup
		for i, s := range sources {
			own := rand.New(rand.NewPCG(seed, uint64(i)+10))
			all.Go(func() { s.write(t, p, own, 150) })
			readers.Go(func() { s.read(t, p, stop) })
		}
		go func() {
			all.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-p.Failed():
			outcome = "ended"
		case <-time.After(5 * time.Minute):
			t.Fatalf("%s: appends neither end nor fail", what)
		}
		close(stop)
		if outcome == "went on" {
			readers.Wait()
		}
	}
	// The process ends, or power fails. All that was acknowledged or read until now must be there afterwards.
	var kept []*source
	for _, s := range sources {
		s.mu.Lock()
		kept = append(kept, &source{
			name: s.name, acked: slices.Clone(s.acked), pending: slices.Clone(s.pending),
			refused: slices.Clone(s.refused), seen: s.seen,
		})
		s.mu.Unlock()
	}
	sources = kept
	if outcome == "ended" {
		if err := p.Failure(); !errors.Is(err, engine.ErrFailed) || !errors.Is(err, failing.err) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := p.Read(t.Context(), "a", 0, 1<<30, 1); !errors.Is(err, engine.ErrFailed) {
			t.Errorf("%s: a failed store is read: %v", what, err)
		}
		if err := p.Check(t.Context()); !errors.Is(err, engine.ErrFailed) {
			t.Errorf("%s: %v", what, err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng}
	mem = mem.CrashClone(cfg)
	if outcome == "went on" {
		if err := p.Close(); err != nil && !(errors.Is(err, engine.ErrFailed) && errors.Is(err, failing.err)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	failing.mend()
	p = reopen(newFaulty(mem))
	for _, s := range sources {
		s.refused = nil
		h := enginetest.Head(t, p, s.name)
		text := "after " + s.name
		a := enginetest.One(h.Last, "after", []byte(text))
		enginetest.Must(p.Append(t.Context(), s.name, a))(t)
		s.acked = append(s.acked, text)
		s.check(t, p)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if failing.hits == 0 {
		outcome = notMet
	}
	return outcome
}

// TestDiskErrors fails one write of the store after another. The store returns an error or fails for good; opened again
// it has all acknowledged appends, and none that was refused. ARBE_DISK_ERRORS is the number of errors to try,
// ARBE_DISK_ERRORS_SEED the seed of the first. TestFullDiskErrors tries others.
func TestDiskErrors(t *testing.T) { manyDiskErrors(t, 7, 1) }

func TestFullDiskErrors(t *testing.T) { manyDiskErrors(t, 15, 11) }

// manyDiskErrors tries n errors, from a seed on.
func manyDiskErrors(t *testing.T, n int, seed uint64) {
	for name, to := range map[string]func(int){
		"ARBE_DISK_ERRORS":      func(i int) { n = i },
		"ARBE_DISK_ERRORS_SEED": func(i int) { seed = uint64(i) },
	} {
		if v := os.Getenv(name); v != "" {
			i, err := strconv.Atoi(v)
			if err != nil || i < 1 {
				t.Fatalf("%s=%s: want a number", name, v)
			}
			to(i)
		}
	}
	outcomes := map[string]int{}
	for met := 0; met < n; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			outcome := "failed"
			defer func() {
				if outcomes[outcome]++; outcome != notMet {
					met++
				}
			}()
			outcome = errored(t, seed)
		})
	}
	t.Logf("%d disk errors: %v", n, outcomes)
	if outcomes["ended"] == 0 {
		t.Error("no error ended the store")
	}
}

// notMet is the outcome of an error that came after the store's last write.
const notMet = "was not met"
