// Package index keeps a summary of each thread of a log: thread.Fold and a little more, folded on as the thread grows.
//
// It is a cache of the log, in a file of its own. It continues from the offset up to which a thread was folded, if the
// log's record there is the one that was folded last; else it folds the thread anew. So an index that is lost, old,
// damaged or of another log costs time and is never wrong. Sync folds what has changed; Run is the loop around it. List
// and Summary fold what is outstanding first, so that a client reads its own writes.
//
// The text of a bot as it comes, and a sign of life of its reaction, change no summary: nobody who watches the list is
// woken by them.
//
// The threads that are appended to have their states in memory. Changed folds an append into such a state from what the
// append has in hand, so that Sync need not read it from the log.
//
// Each server of a cluster has its own. The caller passes each change of a stream to Changed.
package index

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// version is the form of the stored values. A change of state or row makes it another one.
const version = "6"

// Errors that callers branch on.
var (
	ErrBuilding = errors.New("the index of threads is being built")
	ErrAbsent   = errors.New("no such thread")
)

// Index keeps summaries of a log's threads. Its methods may be called at the same time. Close it when done, and after
// Run has returned.
type Index struct {
	log    *log.Log
	logger *slog.Logger
	ready  atomic.Bool // all threads were folded once
	folds  [64]chan struct{}
	hot    *engine.Pool[hot]

	changes sync.Mutex          // guards the fields of this group
	dirty   map[string]struct{} // threads that have changed, those in queue
	queue   []string
	folding int           // threads that were taken from queue and are being folded
	wake    chan struct{} // there is something in queue

	mu     sync.RWMutex // guards the fields of this group
	rows   map[string]*row
	sorted []*row // by start, the newest last; empty until the index is ready
	store  *store

	readers sync.Mutex // guards the fields of this group
	live    map[*Reader]struct{}
}

// row is a thread's entry in the in-memory list.
type row struct {
	id      string
	started int64  // ms
	offset  uint64 // behind the last record that was folded, of those that are not passing
	last    uint64 // a hash of that record
	status  uint8  // index in Statuses
	harness unique.Handle[string]
	born    string // of the stream; "" for most threads
	place   place
}

// Statuses are those that a thread can have.
var Statuses = []string{
	thread.StatusIdle, thread.StatusRunning, thread.StatusCompleted, thread.StatusFailed, thread.StatusCancelled,
}

// hidden reports whether a thread is kept out of the index: one with the records of a box's lease.
func hidden(id string) bool { return strings.HasPrefix(id, "_box_") }

// Open opens the index of a log in the folder dir, and makes it where there is none. installation is the log's; the
// index of another one is dropped.
func Open(dir, installation string, l *log.Log, logger *slog.Logger) (*Index, error) {
	x := &Index{
		log: l, logger: logger, dirty: map[string]struct{}{}, wake: make(chan struct{}, 1),
		rows: map[string]*row{}, live: map[*Reader]struct{}{}, hot: engine.NewPool[hot](mostHot),
	}
	for i := range x.folds {
		x.folds[i] = make(chan struct{}, 1)
	}
	found := func(id string, value []byte, at place) {
		r, _, _, err := decodeRow(value)
		if len(value) == 0 || err != nil {
			delete(x.rows, id)
			return
		}
		if was := x.rows[id]; was != nil { // keep one copy of the id
			id = was.id
		}
		r.id, r.place = id, at
		x.rows[id] = r
	}
	s, dropped, err := openStore(dir, "arbe index "+version+" "+installation, found)
	if err != nil {
		return nil, fmt.Errorf("open the index of threads: %w", err)
	}
	if dropped {
		logger.Warn("index of threads is damaged, cut off or of another version: folding the missing part anew",
			"folder", dir)
	}
	x.store = s
	for _, r := range x.rows {
		s.live += int64(r.place.size)
	}
	return x, nil
}

// Close closes the index.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.store.close()
}

// Changed notes that a stream has changed, and folds an append to a thread in memory. It takes about a microsecond for
// each KB, up to mostInHand, and does not block.
func (x *Index) Changed(c log.Change) {
	id, is := thread.OfStream(c.Stream)
	if !is || hidden(id) {
		return
	}
	if used := x.hot.Peek(id); used != nil && len(c.Records) > 0 {
		used.Value.take(c)
	}
	if c.Before > 0 && len(c.Records) > 0 && !slices.ContainsFunc(c.Records, changing) {
		return
	}
	x.note(id)
}

func (x *Index) note(id string) {
	x.changes.Lock()
	_, known := x.dirty[id]
	if !known {
		x.dirty[id] = struct{}{}
		x.queue = append(x.queue, id)
	}
	x.changes.Unlock()
	if !known {
		select {
		case x.wake <- struct{}{}:
		default:
		}
	}
}

// next takes a thread from the queue.
func (x *Index) next() (id string, ok bool) {
	x.changes.Lock()
	defer x.changes.Unlock()
	if len(x.queue) == 0 {
		x.queue = nil
		return "", false
	}
	id = x.queue[0]
	x.queue = x.queue[1:]
	delete(x.dirty, id)
	x.folding++
	return id, true
}

// done ends what next has begun.
func (x *Index) done() {
	x.changes.Lock()
	x.folding--
	x.changes.Unlock()
}

// idle reports whether all changes are folded.
func (x *Index) idle() (left int, idle bool) {
	x.changes.Lock()
	defer x.changes.Unlock()
	return len(x.queue), len(x.queue)+x.folding == 0
}

// Sync folds the threads that have changed before it was called. A thread that fails stays in the queue; Sync continues
// with the others and returns all errors.
func (x *Index) Sync(ctx context.Context) error { return x.sync(ctx, 1) }

func (x *Index) sync(ctx context.Context, width int) error {
	left, _ := x.idle()
	var errs []error
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(width)
	for range left {
		id, ok := x.next()
		if !ok {
			break
		}
		g.Go(func() error {
			defer x.done()
			if err := x.fold(ctx, id); err != nil {
				x.note(id)
				mu.Lock()
				defer mu.Unlock()
				if len(errs) < 10 {
					errs = append(errs, fmt.Errorf("fold thread %s: %w", id, err))
				}
			}
			return nil
		})
		if ctx.Err() != nil {
			break
		}
	}
	_ = g.Wait() // they return none
	return errors.Join(errs...)
}

// Times of Run. After a pass it sleeps restFactor times as long as the pass took, to take a small part of
// one CPU, and longer after an error.
const (
	restFactor = 200
	leastRest  = 100 * time.Millisecond
	mostRest   = 5 * time.Second
	buildWidth = 8 // threads at once while the index is built: on a cluster each waits for answers
)

// Run folds all threads once and then those that change, until ctx is done. It returns nil then.
func (x *Index) Run(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		began := time.Now()
		err := x.build(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			x.logger.Info("index of threads is ready", "threads", x.Len(), "ms", time.Since(began).Milliseconds())
			break
		}
		x.logger.Warn("build the index of threads", "error", err, "again_in", wait)
		if !pause.For(ctx, wait) {
			return nil
		}
	}
	failing := false
	for {
		select {
		case <-x.wake:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		err := x.Sync(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !failing {
			x.logger.Warn("index of threads is behind", "error", err)
		}
		x.compact()
		rest := min(max(restFactor*time.Since(began), leastRest), mostRest)
		if failing = err != nil; failing {
			rest = mostRest
		}
		if left, _ := x.idle(); left > 0 { // what came meanwhile, and what failed
			select {
			case x.wake <- struct{}{}:
			default:
			}
		}
		if !pause.For(ctx, rest) {
			return nil
		}
	}
}

// build compares all threads with the log, and folds those that differ.
func (x *Index) build(ctx context.Context) error {
	there := map[string]bool{}
	err := x.log.Threads(ctx, func(id string, _ uint64) error {
		if !hidden(id) {
			there[id] = true
			x.note(id)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	x.mu.RLock()
	for id := range x.rows {
		if !there[id] {
			x.note(id)
		}
	}
	x.mu.RUnlock()
	if err := x.sync(ctx, buildWidth); err != nil {
		return err
	}
	x.mu.Lock()
	x.sorted = slices.SortedFunc(maps.Values(x.rows), compare)
	x.ready.Store(true)
	x.mu.Unlock()
	x.compact()
	return nil
}

// Len returns the number of threads.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.rows)
}

// piece is how many bytes of a thread are read at once.
const piece = 1 << 20

// fold folds what a thread has behind the offset of its row.
func (x *Index) fold(ctx context.Context, id string) error {
	turn := x.folds[hash([]byte(id))%uint64(len(x.folds))]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	used := x.hot.Acquire(id)
	defer x.hot.Release(used)
	h := &used.Value
	h.mu.Lock() // before Stat: no append is folded between the two
	defer h.mu.Unlock()
	v, err := x.log.Stat(ctx, thread.StreamName(id))
	if errors.Is(err, log.ErrAbsent) || errors.Is(err, log.ErrGone) || err == nil && v.Tail() == 0 {
		h.state = nil
		return x.remove(id)
	}
	if err != nil {
		return err
	}
	h.fork = v.Fork != nil
	stored := x.stored(id)
	if done, err := x.start(ctx, v, h, stored); done || err != nil {
		return err
	}
	for h.upto < v.Tail() {
		records, err := x.log.Read(ctx, v, h.upto, v.Tail(), piece)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			break // the rest was removed since
		}
		h.read(records)
	}
	if h.row.sameAs(stored) {
		if stored.place.size > mostHotState {
			h.state = nil
		}
		return nil
	}
	return x.put(h)
}

// stored returns a copy of the row of a thread; one with no offset where there is none.
func (x *Index) stored(id string) row {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r := x.rows[id]; r != nil {
		return *r
	}
	return row{id: id}
}

// start makes h the state to continue from: its own or the stored one, if the log still has the record that was folded
// last; else that of an empty thread. done reports that the stored one is up to date.
func (x *Index) start(ctx context.Context, v log.Stream, h *hot, stored row) (done bool, err error) {
	from, upto := stored, stored.offset
	if h.state != nil {
		from, upto = h.row, h.upto
	}
	ok := from.born == v.Born && 0 < from.offset && upto <= v.Tail()
	if ok && (h.state == nil || upto < v.Tail()) {
		if ok, err = x.has(ctx, v, from); err != nil {
			return false, err
		}
	}
	if ok && h.state == nil {
		if from.offset == v.Tail() {
			return true, nil
		}
		h.row, h.upto = from, upto
		h.state = x.load(from)
	}
	if !ok || h.state == nil {
		h.state, h.row, h.upto = &state{}, row{id: stored.id, born: v.Born}, 0
	}
	return false, nil
}

// has reports whether the log has the record that was folded last.
func (x *Index) has(ctx context.Context, v log.Stream, r row) (bool, error) {
	records, err := x.log.Read(ctx, v, r.offset-1, r.offset, 1)
	if n := len(records); err != nil || n == 0 || records[n-1].Seq != r.offset {
		return false, err
	}
	return hashOf(records[len(records)-1]) == r.last, nil
}

// load returns the stored state of a row; nil where there is none.
func (x *Index) load(r row) *state {
	s := &state{}
	if known, err := x.read(r.id, nil, s); err != nil || known.place != r.place {
		return nil
	}
	return s
}

// hash is stable, unlike that of maphash.
func hash(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return h.Sum64()
}

// hashOf identifies the record at some offset by its data and its time of receipt. The processor computes the checksum.
func hashOf(r engine.Record) uint64 {
	return uint64(crc32.Checksum(r.Data, table))<<32 ^ uint64(r.At.UnixMilli())
}
