// Package engine is the vocabulary of the log's engines: streams of records, durable and ordered, each append as a
// whole or not at all. It has no threads, tokens or HTTP.
//
// Two packages implement Engine by the same rules and under the same tests (internal/test/enginetest): host/log/pebble
// in a folder of this machine, and host/log/jetstream on a NATS cluster that several servers share. An append is
// durable when it returns: synced to disk, or stored by a majority of the cluster. Writers are optimistic: an append
// names the head that its writer has read, and fails with ErrConflict where another append came first.
package engine

import (
	"context"
	"errors"
	"time"
)

// Record is one record of a stream.
type Record struct {
	// Seq is the position in the stream. The engine assigns it; it never falls along a stream, and has gaps. The
	// records of one append may share a seq.
	Seq  uint64
	At   time.Time // of receipt, in milliseconds
	Key  string    // unique in the stream, for good; "" for none. Read leaves it empty
	Data []byte
}

// Head is the end of a stream.
type Head struct {
	Last  uint64 // seq of the last append, which the next append names. It may be above 0 for a deleted stream
	Data  uint64 // seq of the last record; 0 for none
	State []byte // the state that the last append set; nil for none
}

// Exists reports whether the stream exists: it has a record or a state.
func (h Head) Exists() bool { return h.Data > 0 || h.State != nil }

// Append is the content of one append to a stream. It may have no records.
type Append struct {
	After   uint64 // Head.Last, as the caller has read it
	Records []Record
	State   []byte            // the stream's state from now on
	Values  map[string][]byte // named values of the stream to set; nil deletes one
}

// Engine reads and writes the records of streams. Methods for retention, watching, backups and failures are in small
// interfaces of their users: host/log, host/server and host/daemon.
//
// A stream's name is 1 to MaxName bytes without NUL. Methods may be called concurrently. The context bounds the wait
// for a cluster. An append that fails with anything but ErrConflict or ErrFull may have happened.
type Engine interface {
	// Append writes to a stream, all or nothing, and returns the new head. ErrConflict: the stream's last append is not
	// After. The caller checks by Lookup that no key is in the stream yet; Append does not.
	Append(ctx context.Context, stream string, a Append) (Head, error)

	// Head returns the stream's head. It is no error if the stream does not exist.
	Head(ctx context.Context, stream string) (Head, error)

	// Read returns the records after seq after up to seq upTo: at most bytes bytes of them, but at least those of one
	// append where there are any. It may return fewer than fit. Reading can continue after any seq that Read returned.
	Read(ctx context.Context, stream string, after, upTo uint64, bytes int) ([]Record, error)

	// Lookup returns the record with this key. A record that was removed since has no data.
	Lookup(ctx context.Context, stream, key string) (Record, bool, error)

	// Value returns the stream's value with this name; nil if there is none.
	Value(ctx context.Context, stream, name string) ([]byte, error)

	// Values returns the stream's named values whose names begin with prefix. It takes time in proportion to their
	// number.
	Values(ctx context.Context, stream, prefix string) (map[string][]byte, error)

	// Close closes the engine. No other method of Engine may be running, and none may be called afterwards.
	Close() error
}

// MaxName is the longest name of a stream, in bytes. Clients may name shorter ones: the log has names with a prefix.
const MaxName = 600

// Errors that callers branch on.
var (
	ErrConflict = errors.New("another append came first")
	ErrFull     = errors.New("the log's disk is full")

	// ErrStale is the error of a read that no majority of the cluster confirms: a leader that is cut off from the
	// others may lack what another one has acknowledged meanwhile.
	ErrStale = errors.New("no majority of the log's servers confirms the read")

	// ErrBusy is the error of a backup while another one is running.
	ErrBusy = errors.New("another backup is running")

	// ErrFailed is the error of an engine that can't continue: the disk refused a write, or the engine's own state is
	// broken. The process has to end. Opening the engine again reads what is on disk.
	ErrFailed = errors.New("the log has failed")
)
