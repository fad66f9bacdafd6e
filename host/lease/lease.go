// Package lease records the holders of a box. A box is released only without a holder.
//
// A hold has a holder: a run, from before it uses the box until its thread reports its end; or a host that copies from
// the box or pushes from it, for a time that it renews. A box without a hold may be released. The release is recorded,
// too, and no hold is accepted after it. Only then the box is deleted, by any host, with retries.
//
// A box with a row in a database has its lease there (host/control). The lease of any other box is a stream of its own,
// OnStream. The n-th record of a stream has the id lease.<n>. A writer decides on the records that it has read. If
// another record came first, the server refuses its record (409); the writer then reads the new records and decides
// again. So two hosts never act on the same state. The clock of the thread server, or of the database, decides whether
// a hold with a time has expired; no other clock and no label of the provider decides anything.
package lease

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// TypeLease is the payload type of a record.
const TypeLease = "signal.sandbox.lease"

// Operations of a record.
const (
	opHold    = "hold"
	opDrop    = "drop"
	opRelease = "release"
)

// ErrReleased is returned if the box was released: it is deleted, or will be.
var ErrReleased = errors.New("the sandbox has been released")

// recordOf returns the record that begins a hold.
func recordOf(h rows.Hold) Record {
	return Record{
		Op: opHold, Holder: h.Holder, ThreadID: h.ThreadID, RunID: h.RunID, TTLMs: h.TTL.Milliseconds(),
	}
}

// Record is the payload of one entry of a box's stream.
type Record struct {
	Type     string `json:"type"`
	Op       string `json:"op"`
	Holder   string `json:"holder"`
	ThreadID string `json:"threadId,omitempty"`
	RunID    string `json:"runId,omitempty"`
	TTLMs    int64  `json:"ttlMs,omitempty"`
}

// State is the state of a lease: the sum of its records.
type State struct {
	Holds    []rows.Hold // in the order of their start
	Released bool
	Now      time.Time // the server's clock when the records were read

	records int
	offset  string
}

// Held returns the first hold that is valid: one with a TTL until that has passed, one of a run while open reports true
// for it.
func (s State) Held(open func(rows.Hold) bool) (rows.Hold, bool) {
	for _, h := range s.Holds {
		if h.TTL > 0 && !h.Expired(s.Now) || h.TTL == 0 && open(h) {
			return h, true
		}
	}
	return rows.Hold{}, false
}

func (s *State) add(r Record, at time.Time) {
	s.records++
	s.Holds = slices.DeleteFunc(s.Holds, func(h rows.Hold) bool { return h.Holder == r.Holder })
	switch r.Op {
	case opHold:
		if !s.Released {
			ttl := time.Duration(r.TTLMs) * time.Millisecond
			s.Holds = append(s.Holds, rows.Hold{
				Holder: r.Holder, ThreadID: r.ThreadID, RunID: r.RunID, TTL: ttl, At: at,
			})
		}
	case opRelease:
		s.Released, s.Holds = true, nil
	}
}

// Stream returns the id of the thread with a box's records.
func Stream(box sandbox.Ref) string {
	id := "_box_" + box.Provider + "_" + box.ID
	if !thread.ValidThread(id) {
		sum := sha256.Sum256([]byte(box.String()))
		id = "_box_" + hex.EncodeToString(sum[:])
	}
	return id
}

// Lease is the lease of one box. It is safe for concurrent use.
type Lease interface {
	// Read returns the state of the lease.
	Read(ctx context.Context) (State, error)
	// Hold holds the box, or renews a hold. It returns ErrReleased if the box was released.
	Hold(ctx context.Context, h rows.Hold) error
	// Try is Hold unless another holder has a valid hold with a TTL. It reports whether it got the hold.
	Try(ctx context.Context, h rows.Hold) (bool, error)
	// Drop ends a hold. A hold that does not exist is no error.
	Drop(ctx context.Context, holder string) error
}

// OnStream is the lease of a box without a row: records on a stream of the box's own.
type OnStream struct {
	Client *client.Client // of the box's stream, which is that of Stream
}

// Read implements Lease.
func (l OnStream) Read(ctx context.Context) (State, error) {
	var s State
	return s, l.readOn(ctx, &s)
}

func (l OnStream) readOn(ctx context.Context, s *State) error {
	from := s.offset
	if from == "" {
		from = "0"
		*s = State{}
	}
	page, err := l.Client.Read(ctx, from, false, func(e thread.Entry) error {
		var r Record
		if e.ID != recordID(s.records) || json.Unmarshal(e.Payload, &r) != nil || r.Type != TypeLease {
			return fmt.Errorf("entry %s is not a record of a lease", e.ID)
		}
		s.add(r, e.Received())
		return nil
	})
	if err != nil && !client.NoThread(err) {
		return fmt.Errorf("read the lease %s: %w", l.Client.Thread, err)
	}
	s.offset, s.Now = page.Next, page.Now
	if s.Now.IsZero() {
		s.Now = time.Now()
	}
	return nil
}

func recordID(n int) string { return "lease." + strconv.Itoa(n) }

// Hold implements Lease.
func (l OnStream) Hold(ctx context.Context, h rows.Hold) error {
	return l.append(ctx, func(s State) (Record, error) {
		if s.Released {
			return Record{}, ErrReleased
		}
		return recordOf(h), nil
	})
}

// Try implements Lease.
func (l OnStream) Try(ctx context.Context, h rows.Hold) (bool, error) {
	got := true
	err := l.append(ctx, func(s State) (Record, error) {
		if s.Released {
			return Record{}, ErrReleased
		}
		other, held := s.Held(func(rows.Hold) bool { return false })
		if got = !held || other.Holder == h.Holder; !got {
			return Record{}, nil
		}
		return recordOf(h), nil
	})
	return got && err == nil, err
}

// Drop implements Lease.
func (l OnStream) Drop(ctx context.Context, holder string) error {
	return l.append(ctx, func(s State) (Record, error) {
		if !slices.ContainsFunc(s.Holds, func(h rows.Hold) bool { return h.Holder == holder }) {
			return Record{}, nil
		}
		return Record{Op: opDrop, Holder: holder}, nil
	})
}

// Release records the release of the box if may returns nil for its state. It may be repeated. A hold that comes while
// may runs makes it run again. Package reap alone releases boxes.
func (l OnStream) Release(ctx context.Context, by string, may func(State) error) error {
	return l.append(ctx, func(s State) (Record, error) {
		if s.Released {
			return Record{}, nil
		}
		if err := may(s); err != nil {
			return Record{}, err
		}
		return Record{Op: opRelease, Holder: by}, nil
	})
}

// attempts bounds the tries to write a record while other writers come first.
const attempts = 20

// append appends the record that decide returns for the present state; none for the zero Record.
func (l OnStream) append(ctx context.Context, decide func(State) (Record, error)) error {
	var s State
	for n := range attempts {
		if err := l.readOn(ctx, &s); err != nil {
			return err
		}
		r, err := decide(s)
		if err != nil || r == (Record{}) {
			return err
		}
		r.Type = TypeLease
		_, err = l.Client.Append(ctx, []thread.Entry{thread.NewEntry(recordID(s.records), "", r)})
		switch {
		case err == nil:
			return nil
		case !client.Taken(err):
			return fmt.Errorf("write the lease %s: %w", l.Client.Thread, err)
		}
		if !pause.For(ctx, rand.N(time.Duration(n+1)*20*time.Millisecond)) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("write the lease %s: other writers came first %d times; try again", l.Client.Thread, attempts)
}

// TTL is the TTL of a host's hold, and renewAfter the interval of its renewal.
const (
	TTL        = 10 * time.Minute
	renewAfter = TTL / 4
)

// Keep renews a hold, which the caller has, until the caller drops it or ctx is done. A renewal that fails is left to
// the next one: the TTL allows several. drop waits for the renewals to stop. It ignores an error: the hold expires.
func Keep(ctx context.Context, l Lease, h rows.Hold) (drop func()) {
	renewing, stop := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for pause.For(renewing, renewAfter) && !errors.Is(l.Hold(renewing, h), ErrReleased) {
		}
	})
	return func() {
		stop()
		renewals.Wait()
		_ = l.Drop(context.WithoutCancel(ctx), h.Holder)
	}
}
