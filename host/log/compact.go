package log

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// valueCompacted is the name of a thread's value that holds its compaction.
const valueCompacted = "tended"

// compaction is the result of the last pass over a thread. Its offsets are those of records: the value itself has none.
type compaction struct {
	Upto    uint64        `json:"upto"`         // end of the thread at the last pass
	From    uint64        `json:"from"`         // all before it is done for good
	Due     time.Time     `json:"due,omitzero"` // when the next records may be removed; zero for none
	Keep    time.Duration `json:"keep"`         // Retention.Heartbeats of the last pass
	Passing time.Duration `json:"passing,omitempty"`
}

// holds reports whether another pass would find nothing new.
func (c compaction) holds(now time.Time, keep Retention, v Stream) bool {
	return c.Keep == keep.Heartbeats && c.Passing == keep.Passing && c.Upto == v.head.Data &&
		(c.Due.IsZero() || now.Before(c.Due))
}

// compact removes the heartbeats of a thread's ended runs, except each run's last one, and what passes of reactions.
// It adds to p how many.
func (l *Log) compact(ctx context.Context, now time.Time, keep Retention, v Stream, p *Pass) error {
	var before compaction
	if err := l.value(ctx, v.Name, valueCompacted, &before); err != nil {
		return err
	}
	if before.holds(now, keep, v) {
		return nil
	}
	if before.Keep == 0 && keep.Heartbeats > 0 || before.Passing == 0 && keep.Passing > 0 {
		before.From = 0 // what a rule has not kept back is not done
	}
	s := survey{keep: keep, groups: map[string]*group{}, prev: before.From, at: before.From}
	if err := l.scan(ctx, v, before.From, s.add); err != nil {
		return err
	}
	after, err := l.settle(ctx, now, v, &s)
	if err != nil {
		return err
	}
	if s.removable {
		if err := l.sweep(ctx, v, before.From, &s, p); err != nil {
			return err
		}
	}
	if after == before {
		return nil
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
	return err
}

// group are records that are removed together.
type group struct {
	of    kind
	id    string // of the run, of the reaction or of its round
	n     int
	first uint64 // offset of the record before the first one
	at    uint64 // offset of the last one
	last  string // id of the last one
	gone  bool   // all, or all but the last one, are to be removed
}

// kind distinguishes groups.
type kind int

const (
	beats  kind = iota // heartbeats of a run
	signs              // signs of life of a reaction
	deltas             // text of a reaction's round
)

// survey has a pass's findings on a thread, or on the rest of one, before it removes anything.
type survey struct {
	keep      Retention
	fold      thread.Fold
	groups    map[string]*group // by kind and id
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

// groupOf returns the group of an entry; false for one that stays.
func (s *survey) groupOf(e thread.Entry) (of kind, id string, is bool) {
	switch thread.TypeOf(e.Payload) {
	case thread.TypeHeartbeat:
		sig, err := thread.Scan(e.Payload)
		return beats, sig.RunID, s.keep.Heartbeats > 0 && err == nil && sig.RunID != ""
	case thread.TypeReactionAlive:
		var p thread.ReactionAlive
		err := json.Unmarshal(e.Payload, &p)
		return signs, p.Reaction, s.keep.Passing > 0 && err == nil
	case thread.TypeDelta:
		var p thread.Delta
		err := json.Unmarshal(e.Payload, &p)
		return deltas, thread.RoundID(p.Reaction.ID, p.Reaction.Round), s.keep.Passing > 0 && err == nil
	}
	return 0, "", false
}

func key(of kind, id string) string { return strconv.Itoa(int(of)) + " " + id }

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
	if of, id, is := s.groupOf(e); is {
		g := s.groups[key(of, id)]
		if g == nil {
			g = &group{of: of, id: id, first: s.prev}
			s.groups[key(of, id)] = g
		}
		g.n++
		g.last, g.at = e.ID, r.Seq
	}
	return nil
}

// goes reports whether to remove a record, and of what kind it is.
func (s *survey) goes(r engine.Record) (of kind, goes bool, err error) {
	e, may, err := signal(r)
	if err != nil || !may {
		return of, false, err
	}
	of, id, is := s.groupOf(e)
	g := s.groups[key(of, id)]
	return of, is && g != nil && g.gone && (of == deltas || g.last != e.ID), nil
}

// settle decides which groups to remove, and when to look again.
func (l *Log) settle(ctx context.Context, now time.Time, v Stream, s *survey) (compaction, error) {
	after := compaction{
		Upto: v.head.Data, From: v.head.Data, Keep: s.keep.Heartbeats, Passing: s.keep.Passing,
	}
	for _, g := range s.groups {
		ended, err := l.ended(ctx, v, s, g)
		if err != nil {
			return after, err
		}
		keep := s.keep.Passing
		if g.of == beats {
			keep = s.keep.Heartbeats
		}
		switch due := ended.Add(keep); {
		case ended.IsZero(), g.of == deltas && g.at == v.head.Data: // the thread's last record stays
			after.From = min(after.From, g.first)
		case now.Before(due):
			after.From = min(after.From, g.first)
			if after.Due.IsZero() || due.Before(after.Due) {
				after.Due = due.UTC()
			}
		default:
			g.gone = g.of == deltas || g.n > 1
			s.removable = s.removable || g.gone
		}
	}
	return after, nil
}

// ended returns since when the records of a group are of no more use; zero where they still may be.
func (l *Log) ended(ctx context.Context, v Stream, s *survey, g *group) (time.Time, error) {
	at := func(id string) (time.Time, error) {
		r, ok, err := l.engine.Lookup(ctx, v.Name, id)
		if err != nil || !ok {
			return time.Time{}, err
		}
		return r.At, nil
	}
	switch g.of {
	case signs:
		return at(thread.ReactionEndID(g.id))
	case deltas:
		if ended, err := at(g.id); err != nil || !ended.IsZero() {
			return ended, err
		}
		reaction, _, _ := strings.Cut(g.id, ".")
		return at(thread.ReactionEndID(reaction))
	case beats:
	}
	run, _ := s.fold.Run(g.id)
	if run.Status == thread.StatusRunning || run.Provisional {
		// Its end may be among the records before this pass.
		if end, err := at(run.ID + ".end.0"); err != nil || end.IsZero() {
			return end, err
		}
	}
	return run.LastSignal, nil // the end, or a heartbeat that crossed it
}

// sweepAtOnce is how many offsets the engine removes in one call.
const sweepAtOnce = 1000

// sweep removes records, and adds to p how many. Records that share an offset are removed together or not at all.
func (l *Log) sweep(ctx context.Context, v Stream, after uint64, s *survey, p *Pass) (err error) {
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
	var some Pass // records at offset at that go
	stays := false
	end := func() error {
		if n := some.Heartbeats + some.Passing; n > 0 && !stays {
			seqs = append(seqs, at)
			p.Heartbeats, p.Passing = p.Heartbeats+some.Heartbeats, p.Passing+some.Passing
		}
		some, stays = Pass{}, false
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
		of, goes, err := s.goes(r)
		switch {
		case !goes:
			stays = true
		case of == beats:
			some.Heartbeats++
		default:
			some.Passing++
		}
		return err
	})
	if err == nil {
		err = errors.Join(end(), flush())
	}
	return err
}
