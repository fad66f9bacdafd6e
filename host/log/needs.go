package log

import (
	"context"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
)

// Engine is the engine of a Log: records, retention, and a reason why appends fail.
type Engine interface {
	engine.Engine
	reader
	pruner

	// Check returns why appends fail now; nil if they don't.
	Check(ctx context.Context) error
}

// reader lists streams, and reads one from its end towards its start.
type reader interface {
	// Streams calls f for each stream that exists. It stops at f's first error and returns it.
	Streams(ctx context.Context, f func(stream string, h engine.Head) error) error

	// ReadBack returns the last records up to seq upTo, in the stream's order: whole appends, until they are n records
	// or have most bytes of data. It returns less only where there are no more records before. Reading back can
	// continue up to any seq below those that it returned.
	ReadBack(ctx context.Context, stream string, upTo uint64, n, most int) ([]engine.Record, error)
}

// finder is an engine on which a look-up for a reader can be cheaper than one for a writer.
type finder interface {
	// Find is Lookup for a caller that appends nothing.
	Find(ctx context.Context, stream, key string) (engine.Record, bool, error)
}

// pruner deletes streams and records, for retention.
type pruner interface {
	// Remove deletes records, but not their keys. An engine may keep a record that it can't delete without its
	// neighbours.
	Remove(ctx context.Context, stream string, seqs []uint64) error

	// Delete deletes a stream with its keys and values. A later stream of the same name has higher seqs.
	Delete(ctx context.Context, stream string) error

	// Retire is Delete for a name that is not given again: the stream's Head has a Last above 0 for good, in contrast
	// to that of a stream which never was. An engine that backs up has that in its backups.
	Retire(ctx context.Context, stream string) error
}

// watcher is an engine whose streams other servers append to as well.
type watcher interface {
	// Watch calls f for each stream that another engine has appended to, until ctx is done. It returns nil then. Calls
	// of f don't overlap. Watch does not report deletions, nor appends to a stream that was deleted since.
	Watch(ctx context.Context, f func(stream string)) error
}

// Watch wakes the followers of streams that other servers append to or delete, until ctx is done. It returns nil then.
func (l *Log) Watch(ctx context.Context) error {
	w, ok := l.engine.(watcher)
	if !ok { // no other server appends
		<-ctx.Done()
		return nil
	}
	return w.Watch(ctx, l.changed)
}

// Observer receives what a log counts, so that a server can measure it. Its methods may be called at the same time.
type Observer interface {
	// Appended reports a durable append: its new entries, those that existed before, the bytes of the new ones, and
	// how long it took.
	Appended(entries, duplicates, bytes int, took time.Duration)
	// Conflicted reports entries that were refused because their ids are taken.
	Conflicted(entries int)
	// Expired reports a stream that was deleted because its time was over.
	Expired()
	// Deleted reports a stream that a caller of Delete deleted.
	Deleted()
}

// unobserved is the Observer of a log without one.
type unobserved struct{}

func (unobserved) Appended(int, int, int, time.Duration) {}
func (unobserved) Conflicted(int)                        {}
func (unobserved) Expired()                              {}
func (unobserved) Deleted()                              {}
