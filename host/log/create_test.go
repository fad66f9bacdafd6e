package log

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/log/engine"
)

// One row for each of the table at Want.decide, and one for each property.
func TestDecideCreate(t *testing.T) {
	ptr := func(n int64) *int64 { return &n }
	place := func(n uint64) *uint64 { return &n }
	soon, later := time.Unix(1, 0), time.Unix(2, 0)
	disk := errors.New("disk")
	plain := Meta{Type: "text/plain"}
	forked := func(f Fork) Meta { return Meta{Type: "text/plain", HasTTL: true, TTL: 5, Fork: &f} }
	differs := func(what string) error { return &ExistsError{what} }
	for name, tt := range map[string]struct {
		stream Meta
		stat   error
		want   Want
		free   bool
		err    error
	}{
		"absent":                        {stat: ErrAbsent, free: true},
		"expired, and can't be deleted": {stat: &undeletedError{disk}, err: disk},
		"deleted":                       {stat: ErrGone, err: ErrKept},
		"unknown":                       {stat: disk, err: disk},
		"equal":                         {stream: plain, want: Want{Type: "text/plain"}},
		"another type":                  {stream: plain, want: Want{Type: "a/b"}, err: differs("content type")},
		"no type is bytes":              {stream: plain, want: Want{}, err: differs("content type")},
		"no type, bytes":                {stream: Meta{Type: "application/octet-stream"}, want: Want{}},
		"closed":                        {stream: plain, want: Want{Type: "text/plain", Closed: true}, err: differs("end")},
		"another TTL":                   {stream: plain, want: Want{Type: "text/plain", TTL: ptr(1)}, err: differs("lifetime")},
		"TTL 0 is one":                  {stream: plain, want: Want{Type: "text/plain", TTL: ptr(0)}, err: differs("lifetime")},
		"no TTL":                        {stream: Meta{Type: "text/plain", HasTTL: true}, want: Want{Type: "text/plain"}, err: differs("lifetime")},
		"the TTL":                       {stream: Meta{Type: "text/plain", HasTTL: true, TTL: 1, Used: soon}, want: Want{Type: "text/plain", TTL: ptr(1)}},
		"another end":                   {stream: Meta{Type: "text/plain", Expires: &soon}, want: Want{Type: "text/plain", Expires: &later}, err: differs("lifetime")},
		"no end":                        {stream: Meta{Type: "text/plain", Expires: &soon}, want: Want{Type: "text/plain"}, err: differs("lifetime")},
		"the end":                       {stream: Meta{Type: "text/plain", Expires: &soon}, want: Want{Type: "text/plain", Expires: &soon}},
		"a fork, no fork":               {stream: forked(Fork{From: "a"}), want: Want{Type: "text/plain", TTL: ptr(5)}, err: differs("origin")},
		"no fork, a fork":               {stream: plain, want: Want{Source: "a"}, err: differs("origin")},
		"another source":                {stream: forked(Fork{From: "a"}), want: Want{Source: "b"}, err: differs("origin")},
		"another offset":                {stream: forked(Fork{From: "a", At: 3}), want: Want{Source: "a", At: place(4)}, err: differs("origin")},
		"another sub-offset":            {stream: forked(Fork{From: "a", Sub: 3}), want: Want{Source: "a"}, err: differs("origin")},
		"the fork":                      {stream: forked(Fork{From: "a", At: 3, Sub: 2}), want: Want{Source: "a", At: place(3), Sub: 2}},
		"the fork, at any offset":       {stream: forked(Fork{From: "a", At: 3}), want: Want{Source: "a"}},
		"the fork, of another type":     {stream: forked(Fork{From: "a"}), want: Want{Source: "a", Type: "a/b"}, err: differs("content type")},
		"the fork, another TTL":         {stream: forked(Fork{From: "a"}), want: Want{Source: "a", TTL: ptr(6)}, err: differs("lifetime")},
	} {
		free, err := tt.want.decide(Stream{Name: "s", Meta: tt.stream}, tt.stat)
		if free != tt.free || !equalErrors(err, tt.err) {
			t.Errorf("%s: got %v, %v, want %v, %v", name, free, err, tt.free, tt.err)
		}
	}
	if free, err := (Want{Closed: true}).decide(Stream{Name: "arbe-thread-t1", Meta: plain}, nil); free || err != nil {
		t.Errorf("a thread: got %v, %v", free, err)
	}
}

// One row for each of the table at Want.fork.
func TestDecideFork(t *testing.T) {
	ptr := func(n int64) *int64 { return &n }
	place := func(n uint64) *uint64 { return &n }
	disk, now := errors.New("disk"), time.Unix(2, 0)
	deep := func(depth int) Stream {
		return Stream{Meta: Meta{Type: "text/plain", Fork: &Fork{From: "b", At: 4, Depth: depth}}, head: engine.Head{Data: 6}}
	}
	source := Stream{Meta: Meta{Type: "text/plain", HasTTL: true, TTL: 5, Born: "x"}, head: engine.Head{Data: 10}}
	fork := func(f Fork) Meta {
		f.From = "a"
		return Meta{Type: "text/plain", HasTTL: true, TTL: 5, Used: now, Fork: &f}
	}
	for name, tt := range map[string]struct {
		source Stream
		stat   error
		want   Want
		meta   Meta
		err    error
	}{
		"absent":            {stat: ErrAbsent, err: &SourceError{"a", ErrAbsent}},
		"can't be deleted":  {stat: &undeletedError{disk}, err: &SourceError{"a", ErrAbsent}},
		"deleted":           {stat: ErrGone, err: &SourceError{"a", ErrGone}},
		"unknown":           {stat: disk, err: disk},
		"another type":      {source: source, want: Want{Type: "a/b"}, err: &TypeError{Source: "a", Type: "text/plain"}},
		"behind its end":    {source: source, want: Want{At: place(11)}, err: &ForkError{10}},
		"too deep":          {source: deep(MaxForkDepth), err: &ForkError{10}},
		"at its end":        {source: source, meta: fork(Fork{Born: "x", At: 10, Depth: 1})},
		"at an offset":      {source: source, want: Want{At: place(3), Sub: 2}, meta: fork(Fork{Born: "x", At: 3, Sub: 2, Depth: 1})},
		"of the type":       {source: source, want: Want{Type: "text/plain"}, meta: fork(Fork{Born: "x", At: 10, Depth: 1})},
		"of a fork":         {source: deep(3), meta: Meta{Type: "text/plain", Used: now, Fork: &Fork{From: "a", At: 10, Depth: 4}}},
		"with its own time": {source: source, want: Want{TTL: ptr(6)}, meta: Meta{Type: "text/plain", HasTTL: true, TTL: 6, Used: now, Fork: &Fork{From: "a", Born: "x", At: 10, Depth: 1}}},
	} {
		tt.want.Source = "a"
		got, err := tt.want.fork(tt.want.fresh(now), tt.source, tt.stat, now)
		if !equalErrors(err, tt.err) {
			t.Errorf("%s: got %v, want %v", name, err, tt.err)
		}
		if diff := cmp.Diff(tt.meta, got); err == nil && diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
