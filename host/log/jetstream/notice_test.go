package jetstream_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/test/enginetest"
	"arbe.0sk.ar/runner/thread"
)

// A stream is deleted before the consumer of another server's watch has read any of its appends: that server still
// receives the change. The notice of it is kept for a day.
func TestDeletionIsAnnounced(t *testing.T) {
	t.Parallel()
	config := configOf(t, start(t, nil))
	config.Shards = 1 // so that the watch reports the changes of all streams in their order
	here, there := log.New(open(t, config)), log.New(open(t, config))
	post := func(id string) {
		t.Helper()
		e := thread.Entry{ID: "e", TS: thread.Stamp(time.Now()), Payload: json.RawMessage(`{"type":"chat","text":"x"}`)}
		if _, err := here.Append(t.Context(), id, []thread.Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	post("deleted")
	if err := here.Delete(t.Context(), thread.StreamName("deleted")); err != nil {
		t.Fatal(err)
	}
	post("later")

	ctx, cancel := context.WithCancel(t.Context())
	var changed []string // by others, in order
	there.Changed = func(c log.Change) {
		if changed = append(changed, c.Stream); c.Stream == thread.StreamName("later") {
			cancel()
		}
	}
	if err := there.Watch(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(changed, thread.StreamName("deleted")) {
		t.Errorf("changed: %q", changed)
	}

	notices := func() (n int) {
		t.Helper()
		if err := here.Engine().Streams(t.Context(), func(name string, _ engine.Head) error {
			if name != thread.StreamName("later") {
				n++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{23 * time.Hour, 1}, {25 * time.Hour, 0}} {
		p := enginetest.Must(here.Expire(t.Context(), time.Now().Add(tt.after), log.Retention{}))(t)
		if got := notices(); got != tt.want || p != (log.Pass{Streams: 1}) {
			t.Errorf("after %s: %d notices, want %d; %+v", tt.after, got, tt.want, p)
		}
	}
}
