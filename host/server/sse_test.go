package server

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log"
)

// One row for each of the tables at liveReader.
func TestLiveReader(t *testing.T) {
	for _, tt := range []struct {
		begun  bool
		after  uint64
		closed bool
		want   bool
	}{
		{false, 0, false, true},
		{false, 9, false, true},
		{false, 9, true, true},
		{true, 8, false, true},
		{true, 8, true, true},
		{true, 9, true, true},
		{true, 9, false, false},
	} {
		l := liveReader{begun: tt.begun, after: log.Offset{Seq: tt.after}}
		if got := l.due(9, tt.closed); got != tt.want {
			t.Errorf("%+v of 9, closed %v: got %v", l, tt.closed, got)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	have := cursor(now, "")
	ahead := cursor(now, have) // of a client that has had this interval's
	for _, tt := range []struct {
		after  uint64
		closed bool
		cursor string
		want   controlEvent
	}{
		{8, false, have, controlEvent{Next: offset(8), Cursor: have}},
		{8, true, have, controlEvent{Next: offset(8), Cursor: have}},
		{9, false, have, controlEvent{Next: offset(9), Cursor: have, UpToDate: true}},
		{9, false, ahead, controlEvent{Next: offset(9), Cursor: ahead, UpToDate: true}},
		{9, true, have, controlEvent{Next: offset(9), UpToDate: true, Closed: true}},
	} {
		l := liveReader{after: log.Offset{Seq: 3}, cursor: tt.cursor}
		got := l.sent(log.Offset{Seq: tt.after}, 9, tt.closed, now)
		if diff := cmp.Diff(tt.want, got); diff != "" || !l.begun || l.after.Seq != tt.after {
			t.Errorf("%d of 9, closed %v: %+v\n%s", tt.after, tt.closed, l, diff)
		}
	}
}
