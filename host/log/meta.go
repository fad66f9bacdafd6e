package log

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// Meta is a stream's properties. The engine keeps them as the stream's state. A thread has none, unless Create made it.
type Meta struct {
	Type     string     `json:"type"`
	TTL      int64      `json:"ttl,omitempty"` // seconds after its last use
	HasTTL   bool       `json:"hasTtl,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
	Used     time.Time  `json:"used,omitzero"` // last use, only with a TTL. A reader writes a time ahead, see lazy
	Closed   bool       `json:"closed,omitempty"`
	ClosedBy *Producer  `json:"closedBy,omitempty"` // the producer's request that closed it; nil without one
	Seq      string     `json:"seq,omitempty"`      // of the last Post with one
	Fork     *Fork      `json:"fork,omitempty"`
	Gone     bool       `json:"gone,omitempty"`    // deleted; kept for its forks, or a thread, whose name stays taken
	Born     string     `json:"born,omitempty"`    // distinguishes it from earlier streams of its name
	Passing  bool       `json:"passing,omitempty"` // a thread that has had entries of a type that IsPassing
}

// Fork is where a stream branches off from another. Up to offset At it reads as its source.
type Fork struct {
	From  string `json:"from"`
	Born  string `json:"born"` // of the source
	At    uint64 `json:"at"`
	Sub   uint64 `json:"sub,omitempty"` // messages, or bytes, behind At that were copied
	Depth int    `json:"depth"`
}

// Stream is a stream as Stat found it.
type Stream struct {
	Name string
	head engine.Head
	Meta
}

// newStream decodes a stream's state. A thread that does not exist any more is gone for good: engines keep the Last of
// what was retired.
func newStream(name string, head engine.Head) (Stream, error) {
	v := Stream{Name: name, head: head}
	if head.State == nil {
		v.Type, v.Gone = typeJSON, !head.Exists() && head.Last > 0 && isThread(name)
		return v, nil
	}
	if err := json.Unmarshal(head.State, &v.Meta); err != nil {
		return v, fmt.Errorf("the state of %s in the log: %w", name, err)
	}
	return v, nil
}

// isThread reports whether a stream of this name is a thread's.
func isThread(name string) bool {
	_, is := thread.OfStream(name)
	return is
}

const typeJSON = "application/json"

// IsJSON reports whether the stream's records are JSON messages.
func (v Stream) IsJSON() bool { return v.Type == typeJSON }

// base returns the offset where the stream's own records begin.
func (v Stream) base() uint64 {
	if v.Fork == nil {
		return 0
	}
	return v.Fork.At
}

// Tail returns the offset of the stream's end.
func (v Stream) Tail() uint64 { return v.base() + v.head.Data }

// expired reports whether the stream has expired.
func (v Stream) expired(now time.Time) bool {
	return v.Expires != nil && !now.Before(*v.Expires) ||
		v.HasTTL && !now.Before(v.Used.Add(time.Duration(v.TTL)*time.Second))
}

// lazy returns by how much a reader writes a stream's last use ahead of time. Within it no reader writes again, so a
// stream may expire late and never early.
func (v Stream) lazy() time.Duration { return time.Duration(v.TTL) * time.Second / 20 }

// state returns the stored form.
func (m Meta) state() []byte { return thread.Marshal(m) }

// born returns a new stream's mark.
func born() string { return rand.Text()[:12] }
