package request

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/thread"
)

// Each error of the log has one answer on the wire.
func TestProblemOf(t *testing.T) {
	bad := []thread.BadEntry{{Index: 1, ID: "a", Reason: "x"}}
	_, syntax := log.ParseEntries([]byte("{"), log.Writer{})
	for _, tt := range []struct {
		err  error
		want Problem
	}{
		{log.ErrAbsent, Problem{404, "not_found", "there is no such stream", nil, nil}},
		{log.ErrGone, Problem{410, "gone", "the stream was deleted, and its name stays taken", nil, nil}},
		{log.ErrKept, Problem{409, "gone", "the stream was deleted, and is kept for its forks", nil, nil}},
		{log.ErrThreadClose, Problem{400, "thread", "a thread is never closed: its run's end may still be on its way", nil, nil}},
		{log.ErrEmpty, Problem{400, "empty", "the array is empty", nil, nil}},
		{log.ErrSeq, Problem{409, "seq", "Stream-Seq is not above the last one", nil, nil}},
		{log.ErrEpoch, Problem{400, "producer", "a new epoch begins with Producer-Seq 0", nil, nil}},
		{log.ErrForkLarge, Problem{400, "fork", "Stream-Fork-Sub-Offset: at most 10000 messages and 8388608 bytes: want a later offset", nil, nil}},
		{log.ErrForkShort, Problem{400, "fork", "Stream-Fork-Sub-Offset: the stream ends before", nil, nil}},
		{&log.ConflictError{Entries: bad}, Problem{409, "conflict", "1 of the ids are taken by other payloads", bad, nil}},
		{&log.EntriesError{Reason: log.Invalid, Entries: bad}, Problem{400, "invalid", "entries are refused, and none was appended", bad, nil}},
		{&log.EntriesError{Reason: log.TooLarge, Entries: bad}, Problem{413, "too_large", "entries are refused, and none was appended", bad, nil}},
		{&log.EntriesError{Reason: log.WrongAuthor, Entries: bad}, Problem{403, "wrong_author", "entries are refused, and none was appended", bad, nil}},
		{&log.EntriesError{Reason: log.WrongRun, Entries: bad}, Problem{403, "wrong_run", "entries are refused, and none was appended", bad, nil}},
		{syntax, Problem{400, "json", "the body is no JSON: not an entry: unexpected end of JSON input", nil, nil}},
		{&log.CountError{Most: 3}, Problem{413, "too_many", "the array has more than 3 elements", nil, nil}},
		{&log.SizeError{Bytes: 9000000}, Problem{413, "too_large", "a message has 9000000 bytes, more than 8388608", nil, nil}},
		{&log.QuotaError{Quota: 7}, Problem{507, "quota", "the stream would hold more than 7 bytes, which is its quota", nil, nil}},
		{&log.StaleEpochError{Epoch: 4}, Problem{403, "stale_epoch", "the producer has a later epoch", nil, map[string]string{"Producer-Epoch": "4"}}},
		{&log.GapError{Want: 2, Got: 5}, Problem{409, "producer_gap", "requests of the producer are missing before this one", nil, map[string]string{"Producer-Expected-Seq": "2", "Producer-Received-Seq": "5"}}},
		{&log.ClosedError{Tail: 7}, Problem{409, "closed", "the stream is closed", nil, map[string]string{"Stream-Closed": "true", "Stream-Next-Offset": "00000000000000000007"}}},
		{&log.TypeError{Type: "a/b"}, Problem{409, "content_type", "the stream is a/b", nil, nil}},
		{&log.TypeError{Source: "s", Type: "a/b"}, Problem{409, "content_type", "the stream s is a/b", nil, nil}},
		{&log.ExistsError{Differs: "end"}, Problem{409, "exists", "the stream is there with another end", nil, nil}},
		{&log.SourceError{Stream: "s", Err: log.ErrAbsent}, Problem{404, "not_found", "there is no stream s to fork from", nil, nil}},
		{&log.SourceError{Stream: "s", Err: log.ErrGone}, Problem{409, "gone", "the stream s was deleted", nil, nil}},
		{&log.SourceError{Stream: "s", Err: errors.New("lost")}, Problem{404, "not_found", "lost", nil, nil}},
		{&log.ForkError{Tail: 7}, Problem{400, "fork", "want an offset up to 00000000000000000007, and at most 64 forks of forks", nil, nil}},
		{memory.ErrBusy, Problem{503, "busy", "the server holds as much as its memory allows: try again later", nil, map[string]string{"Retry-After": "1"}}},
		{memory.ErrShare, Problem{429, "share", "this token's requests hold their share of the server's memory: try again later", nil, map[string]string{"Retry-After": "1"}}},
	} {
		for _, err := range []error{tt.err, fmt.Errorf("the thread's first entries: %w", tt.err)} {
			got := ProblemOf(err)
			if got == nil {
				t.Errorf("%v: no answer", err)
			} else if diff := cmp.Diff(tt.want, *got, cmp.AllowUnexported(Problem{})); diff != "" {
				t.Errorf("%v: %s", err, diff)
			}
		}
	}
	for _, err := range []error{engine.ErrFull, engine.ErrStale, engine.ErrConflict, errors.New("else")} {
		if p := ProblemOf(err); p != nil {
			t.Errorf("%v: got %+v", err, p)
		}
	}
}
