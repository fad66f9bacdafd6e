// Package stream is a thread server: a durable, ordered log of entries for each thread, on an embedded Pebble store, behind the thread API over
// HTTP, with access by signed tokens.
//
// An append is on disk, synced, before it is answered, and readers see nothing that is not. A post of several entries is there as a whole or not
// at all. An entry's id is good for ever: posting it again with an equal payload changes nothing, with another payload it is a conflict.
package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"

	"arbe.0sk.ar/runner/thread"
)

// Keys of the store, where T is a thread's id, which has no NUL in it:
//
//	e T NUL seq    an entry: when it was received, in milliseconds since 1970 (8 bytes), and its JSON
//	i T NUL id     the seq of the entry with that id
//
// seq is 8 bytes, big endian, and counts a thread's entries from 1.
const (
	keyEntry = 'e'
	keyID    = 'i'
)

// Log keeps the entries of all threads in one folder. It is safe for concurrent use. Close it when done.
type Log struct {
	db *pebble.DB

	mu      sync.Mutex
	threads map[string]*tail // those in use, and some that were lately
}

// tail is the end of one thread.
type tail struct {
	users int // guarded by Log.mu

	mu     sync.Mutex // held by whoever appends, commit included: a thread's entries have one order
	loaded bool
	seq    uint64        // of the last durable entry, 0 for none
	grown  chan struct{} // closed when seq grows
}

// maxIdle is how many threads that nobody uses are kept in mind.
const maxIdle = 10_000

// OpenLog opens the log in dir, and makes it where there is none. One process at a time can have it.
func OpenLog(dir string, log *slog.Logger) (*Log, error) {
	opts := &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       32 << 20,
		Logger:             pebbleLog{log},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // "is this id new?" mostly costs no read
	}
	db, err := pebble.Open(dir, opts)
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir, err)
	}
	return &Log{db: db, threads: map[string]*tail{}}, nil
}

// Close closes the store. Nobody may be using it any more.
func (l *Log) Close() error { return l.db.Close() }

// ConflictError says that ids are taken by entries with other payloads.
type ConflictError struct{ Entries []thread.BadEntry }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%d of the ids are taken by other payloads", len(e.Entries))
}

// Appended is what an append came to.
type Appended struct {
	Next       uint64 // the seq after which a reader finds what comes later
	Appended   int
	Duplicates int // were there already
}

// Append appends entries to a thread, in order, all or none, and returns when they are on disk. Entries that are there already, with an equal
// payload, are counted and nothing more. A *ConflictError lists those whose id is taken.
func (l *Log) Append(threadID string, entries []thread.Entry) (Appended, error) {
	t := l.acquire(threadID)
	defer l.release(threadID, t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := l.load(threadID, t); err != nil {
		return Appended{}, err
	}

	batch := l.db.NewBatch()
	defer batch.Close() // after a commit there is nothing left in it
	res := Appended{Next: t.seq}
	var conflicts []thread.BadEntry
	fresh := map[string]thread.Entry{} // by id, of this append
	now := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
	for i, e := range entries {
		before, taken := fresh[e.ID]
		if !taken {
			var err error
			if before, taken, err = l.byID(threadID, e.ID); err != nil {
				return Appended{}, err
			}
		}
		switch {
		case taken && equalJSON(before.Payload, e.Payload):
			res.Duplicates++
		case taken:
			conflicts = append(conflicts, thread.BadEntry{Index: i, ID: e.ID, Reason: "the id is taken by an entry with another payload"})
		default:
			res.Next++
			seq := binary.BigEndian.AppendUint64(nil, res.Next)
			err := batch.Set(entryKey(threadID, res.Next), e.AppendJSON(now[:8:8]), nil)
			if err = errors.Join(err, batch.Set(idKey(threadID, e.ID), seq, nil)); err != nil {
				return Appended{}, err
			}
			res.Appended++
			fresh[e.ID] = e
		}
	}
	if conflicts != nil {
		return Appended{}, &ConflictError{conflicts}
	}
	if res.Appended == 0 {
		return res, nil
	}
	if err := batch.Commit(pebble.Sync); err != nil {
		// It may or may not be on disk: what is there is looked up anew before the next append.
		t.loaded = false
		return Appended{}, fmt.Errorf("append to the log: %w", err)
	}
	l.mu.Lock()
	t.seq = res.Next
	close(t.grown)
	t.grown = make(chan struct{})
	l.mu.Unlock()
	return res, nil
}

// Tail returns the seq of the thread's last durable entry, 0 for a thread that was never written, and a channel that is closed when there is more.
func (l *Log) Tail(threadID string) (uint64, <-chan struct{}, error) {
	t := l.acquire(threadID)
	defer l.release(threadID, t)
	t.mu.Lock()
	err := l.load(threadID, t)
	t.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.seq, t.grown, nil
}

// record is an entry as it is stored.
type record struct {
	seq uint64
	at  time.Time
	raw []byte // the entry's JSON
}

// Read returns the thread's entries after seq after and up to seq upTo, as many as fit into some bytes, at least one where there is one.
func (l *Log) Read(threadID string, after, upTo uint64, bytes int) ([]record, error) {
	iter, err := l.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(threadID, after+1), UpperBound: entryKey(threadID, upTo+1)})
	if err != nil {
		return nil, err
	}
	var records []record
	for ok := iter.First(); ok && bytes > 0; ok = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		key := iter.Key()
		r, err := parseRecord(binary.BigEndian.Uint64(key[len(key)-8:]), value)
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		r.raw = append([]byte(nil), r.raw...)
		records = append(records, r)
		bytes -= len(value)
	}
	return records, iter.Close()
}

func parseRecord(seq uint64, value []byte) (record, error) {
	if len(value) < 10 {
		return record{}, fmt.Errorf("entry %d in the log is damaged: %d bytes", seq, len(value))
	}
	return record{seq, time.UnixMilli(int64(binary.BigEndian.Uint64(value))), value[8:]}, nil
}

// EndedAt returns when the thread's server received the entry with this id; false where there is none.
func (l *Log) EndedAt(threadID, id string) (time.Time, bool, error) {
	seq, ok, err := l.seqOf(threadID, id)
	if err != nil || !ok {
		return time.Time{}, false, err
	}
	var at time.Time
	err = l.get(entryKey(threadID, seq), func(value []byte) error {
		r, err := parseRecord(seq, value)
		at = r.at
		return err
	})
	return at, true, err
}

// byID returns the entry with this id; false where there is none.
func (l *Log) byID(threadID, id string) (e thread.Entry, ok bool, err error) {
	seq, ok, err := l.seqOf(threadID, id)
	if err != nil || !ok {
		return thread.Entry{}, false, err
	}
	err = l.get(entryKey(threadID, seq), func(value []byte) error {
		r, err := parseRecord(seq, value)
		if err == nil {
			e, err = thread.ParseEntry(r.raw)
		}
		return err
	})
	return e, true, err
}

func (l *Log) seqOf(threadID, id string) (seq uint64, ok bool, err error) {
	err = l.get(idKey(threadID, id), func(value []byte) error {
		if len(value) != 8 {
			return fmt.Errorf("the index of entry %s in the log is damaged", id)
		}
		seq, ok = binary.BigEndian.Uint64(value), true
		return nil
	})
	if errors.Is(err, pebble.ErrNotFound) {
		err = nil
	}
	return seq, ok, err
}

func (l *Log) get(key []byte, f func(value []byte) error) error {
	value, closer, err := l.db.Get(key)
	if err != nil {
		return err
	}
	return errors.Join(f(value), closer.Close())
}

// acquire returns the thread's tail, which stays in mind until it is released.
func (l *Log) acquire(threadID string) *tail {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.threads[threadID]
	if t == nil {
		if len(l.threads) >= maxIdle {
			for id, idle := range l.threads { // whichever come first: it costs a look-up to bring one back
				if idle.users == 0 {
					delete(l.threads, id)
				}
				if len(l.threads) < maxIdle*9/10 {
					break
				}
			}
		}
		t = &tail{grown: make(chan struct{})}
		l.threads[threadID] = t
	}
	t.users++
	return t
}

func (l *Log) release(_ string, t *tail) {
	l.mu.Lock()
	t.users--
	l.mu.Unlock()
}

// load finds the thread's last entry. The caller holds t.mu.
func (l *Log) load(threadID string, t *tail) error {
	if t.loaded {
		return nil
	}
	iter, err := l.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(threadID, 0), UpperBound: entryKey(threadID, 1<<63)})
	if err != nil {
		return err
	}
	var seq uint64
	if iter.Last() {
		key := iter.Key()
		seq = binary.BigEndian.Uint64(key[len(key)-8:])
	}
	if err := iter.Close(); err != nil {
		return err
	}
	l.mu.Lock()
	t.seq, t.loaded = seq, true
	l.mu.Unlock()
	return nil
}

// Threads tells f of each thread, in the order of their ids, and of the seq of its last entry. It stops at f's first error and returns it.
func (l *Log) Threads(f func(id string, last uint64) error) error {
	iter, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{keyEntry}, UpperBound: []byte{keyEntry + 1}})
	if err != nil {
		return err
	}
	for ok := iter.First(); ok && err == nil; {
		key := iter.Key()
		id := string(key[1 : len(key)-9]) // between the kind and the NUL before seq
		next := prefixed(keyEntry, id, 0)
		next[len(next)-1]++ // beyond all of this thread's
		if ok = iter.SeekLT(next); !ok {
			break
		}
		key = iter.Key()
		last := binary.BigEndian.Uint64(key[len(key)-8:])
		if err = f(id, last); err == nil {
			ok = iter.SeekGE(next)
		}
	}
	return errors.Join(err, iter.Error(), iter.Close())
}

func entryKey(threadID string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(prefixed(keyEntry, threadID, 8), seq)
}

func idKey(threadID, id string) []byte { return append(prefixed(keyID, threadID, len(id)), id...) }

func prefixed(kind byte, threadID string, room int) []byte {
	key := make([]byte, 0, 2+len(threadID)+room)
	key = append(key, kind)
	key = append(key, threadID...)
	return append(key, 0)
}

// pebbleLog passes on what the store has to say.
type pebbleLog struct{ log *slog.Logger }

func (p pebbleLog) Infof(format string, args ...any)  { p.log.Debug(fmt.Sprintf(format, args...)) }
func (p pebbleLog) Errorf(format string, args ...any) { p.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf is called where the store can't go on: a damaged file, a disk that fails. It must not return.
func (p pebbleLog) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	p.log.Error("the log can't go on", "error", msg)
	panic(msg)
}
