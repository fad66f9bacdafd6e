package streams

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/server/metrics"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/thread"
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
		{8, false, have, controlEvent{Next: request.Offset(8), Cursor: have}},
		{8, true, have, controlEvent{Next: request.Offset(8), Cursor: have}},
		{9, false, have, controlEvent{Next: request.Offset(9), Cursor: have, UpToDate: true}},
		{9, false, ahead, controlEvent{Next: request.Offset(9), Cursor: ahead, UpToDate: true}},
		{9, true, have, controlEvent{Next: request.Offset(9), UpToDate: true, Closed: true}},
	} {
		l := liveReader{after: log.Offset{Seq: 3}, cursor: tt.cursor}
		got := l.sent(log.Offset{Seq: tt.after}, 9, tt.closed, now)
		if diff := cmp.Diff(tt.want, got); diff != "" || !l.begun || l.after.Seq != tt.after {
			t.Errorf("%d of 9, closed %v: %+v\n%s", tt.after, tt.closed, l, diff)
		}
	}
}

// One row for each reason of liveReader.skip.
func TestLiveReaderSkips(t *testing.T) {
	signals, at := thread.Types{Of: []string{"signal."}}, log.Offset{Seq: 9}
	some := []engine.Record{{Seq: 9}}
	for name, tt := range map[string]struct {
		reader  liveReader
		records []engine.Record
		want    bool
	}{
		"others at the tail, which it has":       {liveReader{types: signals, begun: true, tail: true}, nil, true},
		"others at the tail, after earlier data": {liveReader{types: signals, begun: true}, nil, false},
		"others, nothing sent yet":               {liveReader{types: signals}, nil, false},
		"one of its types":                       {liveReader{types: signals, begun: true, tail: true}, some, false},
		"no types":                               {liveReader{begun: true, tail: true}, nil, false},
	} {
		l := tt.reader
		if got := l.skip(log.Piece{Records: tt.records, Next: at}, 9); got != tt.want || got != (l.after == at) {
			t.Errorf("%s: %v, at %v", name, got, l.after)
		}
	}
	l := liveReader{types: signals, begun: true}
	if !l.skip(log.Piece{Next: log.Offset{Seq: 8}}, 9) || l.after.Seq != 8 {
		t.Errorf("others before the tail: %+v", l)
	}
	// The moved offset is sent once, in an event of its own.
	a := &API{&request.Core{Metrics: metrics.New("test", nil, "")}}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	if !a.tellOffset(w, r, log.Stream{}, &l) || a.tellOffset(w, r, log.Stream{}, &l) {
		t.Errorf("%+v", l)
	}
	if got := w.Body.String(); !strings.HasPrefix(got, "event: control\n") || strings.Count(got,
		"id:"+request.Offset(8)) != 1 {
		t.Errorf("sent %q", got)
	}
}
