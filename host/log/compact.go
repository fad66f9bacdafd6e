package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// valueCompacted is the name of a thread's value that holds its compaction.
const valueCompacted = "tended"

// compaction is the result of the last pass over a thread. Its offsets are those of records: the value itself has none.
type compaction struct {
	Upto uint64        `json:"upto"`         // end of the thread at the last pass
	From uint64        `json:"from"`         // all before it is done for good
	Due  time.Time     `json:"due,omitzero"` // when the next heartbeats may be removed; zero for none
	Keep time.Duration `json:"keep"`         // Retention.Heartbeats of the last pass
}

// compact removes the heartbeats of a thread's ended runs, except each run's last one, and returns how many.
func (l *Log) compact(ctx context.Context, now time.Time, keep time.Duration, v Stream) (int, error) {
	var before compaction
	if err := l.value(ctx, v.Name, valueCompacted, &before); err != nil {
		return 0, err
	}
	if before.Keep == keep && before.Upto == v.head.Data && (before.Due.IsZero() || now.Before(before.Due)) {
		return 0, nil
	}
	s := survey{beats: map[string]*beats{}, prev: before.From, at: before.From}
	if err := l.scan(ctx, v, before.From, s.add); err != nil {
		return 0, err
	}
	after, err := l.settle(ctx, now, keep, v, &s)
	if err != nil {
		return 0, err
	}
	removed := 0
	if s.removable {
		if removed, err = l.sweep(ctx, v, before.From, &s); err != nil {
			return removed, err
		}
	}
	if after == before {
		return removed, nil
	}
	_, err = l.update(ctx, v.Name, func(head engine.Head) (*engine.Append, error) {
		if head.Data < v.head.Data || !head.Exists() {
			return nil, nil // deleted since
		}
		return &engine.Append{
			State:  head.State,
			Values: map[string][]byte{valueCompacted: thread.Marshal(after)},
		}, nil
	})
	return removed, err
}

// beats are the heartbeats of one run.
type beats struct {
	n     int
	first uint64 // offset of the record before the first one
	last  string // id of the last one
	gone  bool   // all but the last one are to be removed
}

// survey has a pass's findings on a thread, or on the rest of one, before it removes anything.
type survey struct {
	fold      thread.Fold
	beats     map[string]*beats // by run
	removable bool

	at   uint64 // offset of the record that was added last. Records of one append can share it
	prev uint64 // offset before at
}

// scan calls f for the stream's own records after an offset.
func (l *Log) scan(ctx context.Context, v Stream, after uint64, f func(engine.Record) error) error {
	for after < v.head.Data {
		records, err := l.engine.Read(ctx, v.Name, after, v.head.Data, readAtOnce)
		if err != nil || len(records) == 0 {
			return err
		}
		for _, r := range records {
			if err := f(r); err != nil {
				return fmt.Errorf("record at %d: %w", r.Seq, err)
			}
		}
		after = records[len(records)-1].Seq
	}
	return nil
}

// signal parses a record that may be a signal. It skips an agent's records unparsed, and so signals in another spelling
// than our own.
func signal(r engine.Record) (e thread.Entry, may bool, err error) {
	if !bytes.Contains(r.Data, []byte(`"signal.`)) {
		return e, false, nil
	}
	e, err = thread.ParseStored(r.Data)
	e.At = thread.Stamp(r.At)
	return e, true, err
}

// beatOf returns the run of a heartbeat; false for another entry, and for one without a run.
func beatOf(e thread.Entry) (run string, is bool) {
	sig, err := thread.Scan(e.Payload)
	return sig.RunID, err == nil && sig.Type == thread.TypeHeartbeat && sig.RunID != ""
}

// add counts a record.
func (s *survey) add(r engine.Record) error {
	if r.Seq != s.at {
		s.prev, s.at = s.at, r.Seq
	}
	e, may, err := signal(r)
	if err != nil || !may {
		return err
	}
	s.fold.Add(e)
	if run, is := beatOf(e); is {
		b := s.beats[run]
		if b == nil {
			b = &beats{first: s.prev}
			s.beats[run] = b
		}
		b.n++
		b.last = e.ID
	}
	return nil
}

// goes reports whether to remove a record.
func (s *survey) goes(r engine.Record) (bool, error) {
	e, may, err := signal(r)
	if err != nil || !may {
		return false, err
	}
	run, is := beatOf(e)
	b := s.beats[run]
	return is && b != nil && b.gone && b.last != e.ID, nil
}

// settle decides which runs' heartbeats to remove, and when to look again.
func (l *Log) settle(
	ctx context.Context, now time.Time, keep time.Duration, v Stream, s *survey,
) (compaction, error) {
	after := compaction{Upto: v.head.Data, From: v.head.Data, Keep: keep}
	for _, r := range s.fold.Runs() {
		b := s.beats[r.ID]
		if b == nil {
			continue
		}
		ended := r.LastSignal // the end, or a heartbeat that crossed it
		if r.Status == thread.StatusRunning || r.Provisional {
			// Its end may be among the records before this pass.
			_, ok, err := l.engine.Lookup(ctx, v.Name, r.ID+".end.0")
			if err != nil {
				return after, err
			}
			if !ok {
				after.From = min(after.From, b.first)
				continue
			}
		}
		if due := ended.Add(keep); now.Before(due) {
			after.From = min(after.From, b.first)
			if after.Due.IsZero() || due.Before(after.Due) {
				after.Due = due.UTC()
			}
			continue
		}
		b.gone = b.n > 1
		s.removable = s.removable || b.gone
	}
	return after, nil
}

// sweepAtOnce is how many offsets the engine removes in one call.
const sweepAtOnce = 1000

// sweep removes heartbeats. Records that share an offset are removed together or not at all.
func (l *Log) sweep(ctx context.Context, v Stream, after uint64, s *survey) (removed int, err error) {
	var seqs []uint64
	flush := func() error {
		if len(seqs) == 0 {
			return nil
		}
		err := l.engine.Remove(ctx, v.Name, seqs)
		seqs = seqs[:0]
		return err
	}
	var at uint64
	some, stays := 0, false // about the records at offset at
	end := func() error {
		if some > 0 && !stays {
			seqs = append(seqs, at)
			removed += some
		}
		some, stays = 0, false
		if len(seqs) < sweepAtOnce {
			return nil
		}
		return flush()
	}
	err = l.scan(ctx, v, after, func(r engine.Record) error {
		if r.Seq != at {
			if err := end(); err != nil {
				return err
			}
			at = r.Seq
		}
		goes, err := s.goes(r)
		if goes {
			some++
		} else {
			stays = true
		}
		return err
	})
	if err == nil {
		err = errors.Join(end(), flush())
	}
	return removed, err
}
