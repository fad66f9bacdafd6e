// Package store keeps streams of records: durable, ordered, each append as a whole or not at all. It knows nothing of threads, tokens or HTTP.
//
// Two engines do it, by the same rules and under the same tests: Pebble in a folder of this machine, and NATS JetStream on a cluster that several
// servers share. An append is good when it returns: synced to disk, or held by a majority of the cluster's disks. Whoever appends says where he has
// seen the stream stand, and is told of a conflict where it stands elsewhere.
package engine

import (
	"context"
	"errors"
	"time"
)

// Record is one piece of a stream.
type Record struct {
	// Seq is where it stands: given by the engine, never falling along a stream, with gaps. What one append brought can have one seq.
	Seq  uint64
	At   time.Time // of receipt, to the millisecond
	Key  string    // no other record of the stream has it, ever; "" for none. Not told by Read
	Data []byte
}

// Head is where a stream stands.
type Head struct {
	Last  uint64 // seq of the last append, to be named by the next one. It may be more than 0 for a stream that was deleted
	Data  uint64 // seq of the last record; 0 for none
	State []byte // as the last append left it; nil for none
}

// Exists reports whether there is such a stream: it has a record or a state.
func (h Head) Exists() bool { return h.Data > 0 || h.State != nil }

// Append is what an append adds to a stream. It may be without records.
type Append struct {
	After   uint64 // Head.Last, as the caller has seen it
	Records []Record
	State   []byte            // the stream's state from now on
	Values  map[string][]byte // named values of the stream that change; nil takes one away
}

// Engine keeps streams. A stream's name is 1 to MaxName bytes without NUL. All methods may be called at the same time. The context bounds the wait for a
// cluster; an append that fails with anything but ErrConflict or ErrFull may have happened.
type Engine interface {
	// Append adds to a stream, all or nothing, and returns where it stands then. ErrConflict: the stream does not stand at After.
	// That no record's key is there already is for the caller to see to, by Lookup.
	Append(ctx context.Context, stream string, a Append) (Head, error)

	// Head tells where a stream stands, for one that does not exist, too.
	Head(ctx context.Context, stream string) (Head, error)

	// Read returns the records after seq after up to seq upTo, as many as fit into some bytes, but at least one append's where there are any.
	// A returned seq is a place where reading can go on.
	Read(ctx context.Context, stream string, after, upTo uint64, bytes int) ([]Record, error)

	// Lookup returns the record with this key. One that was removed since has no data.
	Lookup(ctx context.Context, stream, key string) (Record, bool, error)

	// Value returns the stream's value with this name; nil where there is none.
	Value(ctx context.Context, stream, name string) ([]byte, error)

	// Values returns the stream's named values whose names begin with prefix. It takes as long as there are such values.
	Values(ctx context.Context, stream, prefix string) (map[string][]byte, error)

	// Remove takes records away, but not their keys. An engine may keep some where it can't take one away without its neighbours.
	Remove(ctx context.Context, stream string, seqs []uint64) error

	// Delete takes a stream away, with all that belongs to it. A stream of the same name has higher seqs later.
	Delete(ctx context.Context, stream string) error

	// Streams tells f of each stream that exists. It stops at f's first error and returns it.
	Streams(ctx context.Context, f func(stream string, h Head) error) error

	// Watch tells f of streams that others than this engine have added to, until ctx is done. It returns nil then.
	Watch(ctx context.Context, f func(stream string)) error

	// Check returns why nothing can be appended now; nil where all is well.
	Check(ctx context.Context) error

	Close() error
}

// MaxName is the length of a stream's name, in bytes.
const MaxName = 512

// Errors that callers tell apart.
var (
	ErrConflict = errors.New("the stream has moved on")
	ErrFull     = errors.New("the log's disk is full")
)

// ErrStale is the error of a read for which no majority of the cluster stands: a leader that is cut off from the
// others may not have what another one has acknowledged meanwhile.
var ErrStale = errors.New("no majority of the log's servers answers for what is read")

// ErrFailed is the error of an engine that can't go on: the disk refused a write, or the store's own state is broken.
// The process is to end. Opening the store again finds out what is on disk.
var ErrFailed = errors.New("the log has failed")

// Failer is an engine that can fail for good. Once Failed is closed, calls that were under way may never return,
// appends among them may be on disk or not, and calls that come are refused with ErrFailed. Nothing more is written.
type Failer interface {
	Failed() <-chan struct{}

	// Failure is an ErrFailed with the cause; nil while the engine works.
	Failure() error
}
