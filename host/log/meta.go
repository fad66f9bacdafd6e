package log

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// meta is what a stream is, as PUT made it and what came since has made of it. It is the stream's state in the engine. A thread has none, but for one that
// was made by PUT.
type Meta struct {
	Type     string     `json:"type"`
	TTL      int64      `json:"ttl,omitempty"` // seconds since it was used last
	HasTTL   bool       `json:"hasTtl,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
	Used     time.Time  `json:"used,omitzero"` // only with a TTL. Readers put it ahead by what they are late to write it down again
	Closed   bool       `json:"closed,omitempty"`
	ClosedBy *Producer  `json:"closedBy,omitempty"` // whose append closed it
	Seq      string     `json:"seq,omitempty"`      // the last Stream-Seq
	Fork     *Fork      `json:"fork,omitempty"`
	Gone     bool       `json:"gone,omitempty"` // deleted, and kept for its forks
	Born     string     `json:"born,omitempty"` // tells it from others that had its name before
}

// fork is where a stream branches off. Up to offset At it is the other stream.
type Fork struct {
	From  string `json:"from"`
	Born  string `json:"born"` // the other's
	At    uint64 `json:"at"`
	Sub   uint64 `json:"sub,omitempty"` // so much of what follows At was copied
	Depth int    `json:"depth"`
}

// view is a stream at one moment.
type Stream struct {
	Name string
	head engine.Head
	Meta
}

// newView reads a stream's state.
func newStream(name string, head engine.Head) (Stream, error) {
	v := Stream{Name: name, head: head}
	if head.State == nil {
		v.Type = typeJSON
		return v, nil
	}
	if err := json.Unmarshal(head.State, &v.Meta); err != nil {
		return v, fmt.Errorf("the state of %s in the log: %w", name, err)
	}
	return v, nil
}

const typeJSON = "application/json"

func (v Stream) IsJSON() bool { return v.Type == typeJSON }

// base is the offset where what the stream has of its own begins.
func (v Stream) base() uint64 {
	if v.Fork == nil {
		return 0
	}
	return v.Fork.At
}

// tail is the offset of the stream's end.
func (v Stream) Tail() uint64 { return v.base() + v.head.Data }

// expired reports whether the stream's time is over.
func (v Stream) expired(now time.Time) bool {
	return v.Expires != nil && !now.Before(*v.Expires) || v.HasTTL && !now.Before(v.Used.Add(time.Duration(v.TTL)*time.Second))
}

// lazy is by how much a reader's use of a stream may be written down too late: it is put so far ahead, so that a stream never expires early.
func (v Stream) lazy() time.Duration { return time.Duration(v.TTL) * time.Second / 20 }

// state is the meta as it is stored.
func (m Meta) state() []byte { return thread.Marshal(m) }

// born is a new stream's mark.
func born() string { return rand.Text()[:12] }
