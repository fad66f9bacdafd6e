package log

import (
	"context"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// valueSize is the name of a stream's value that holds its size before its last append. It is written only where
// streams have a quota.
const valueSize = "size"

// sized is the size of a stream up to an offset.
type sized struct {
	Bytes int64  `json:"bytes"`
	Upto  uint64 `json:"upto"`
}

// recordCost returns what a record counts beside its data: its key with the stream's name, and its time.
func recordCost(name string) int { return len(name) + 64 }

// Above a quota there is room for small posts, so that the end of a run gets through.
const (
	smallPost    = 64 << 10
	overQuotaFor = 1 << 20
)

// meter counts an append to a stream at s.head, and returns a *QuotaError where it does not fit. It reads the stream's
// size where this process has not cached it, and all of the stream where its size was never stored. s.mu is held.
func (l *Log) meter(ctx context.Context, name string, s *live, a *engine.Append) (size int64, err error) {
	if l.Quota <= 0 || len(a.Records) == 0 {
		return s.size, nil
	}
	if s.sizedAt != s.head.Last || s.head.Last == 0 {
		if s.size, err = l.sizeOf(ctx, Stream{Name: name, head: s.head}); err != nil {
			return 0, err
		}
		s.sizedAt = s.head.Last
	}
	added := int64(sizeOf(a.Records) + len(a.Records)*recordCost(name))
	most := l.Quota
	if added <= smallPost {
		most += overQuotaFor
	}
	if s.size+added > most {
		return 0, &QuotaError{l.Quota}
	}
	if a.Values == nil {
		a.Values = map[string][]byte{}
	}
	a.Values[valueSize] = thread.Marshal(sized{Bytes: s.size, Upto: s.head.Data})
	return s.size + added, nil
}

// sizeOf returns the size of a stream. Records that were removed later still count.
func (l *Log) sizeOf(ctx context.Context, v Stream) (int64, error) {
	var at sized
	if err := l.value(ctx, v.Name, valueSize, &at); err != nil {
		return 0, err
	}
	err := l.scan(ctx, v, at.Upto, func(r engine.Record) error {
		at.Bytes += int64(len(r.Data) + recordCost(v.Name))
		return nil
	})
	return at.Bytes, err
}
