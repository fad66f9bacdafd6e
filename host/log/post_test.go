package log

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// One row for each of the table at Post.decide, and the next ones to it.
func TestDecidePost(t *testing.T) {
	const kind = "text/plain"
	open, closed := Meta{Type: kind}, Meta{Type: kind, Closed: true}
	at := func(epoch, seq int64) *Producer { return &Producer{ID: "p", Epoch: epoch, Seq: seq} }
	closedBy := func(p *Producer) Meta { return Meta{Type: kind, Closed: true, ClosedBy: p} }
	body := []byte("x")
	for name, tt := range map[string]struct {
		stream Meta
		last   *Producer
		post   Post
		want   postAction
		err    error // to be equal
	}{
		"an earlier epoch":                {open, at(2, 5), Post{Producer: at(1, 0), Body: body, Type: kind}, 0, &StaleEpochError{2}},
		"an earlier epoch, closed":        {closed, at(2, 5), Post{Producer: at(1, 0), Body: body, Type: kind}, 0, &StaleEpochError{2}},
		"an epoch begins at 1":            {open, at(1, 5), Post{Producer: at(2, 1), Body: body, Type: kind}, 0, ErrEpoch},
		"an epoch begins at 1, closed":    {closed, at(1, 5), Post{Producer: at(2, 1), Body: body, Type: kind}, 0, ErrEpoch},
		"an epoch begins":                 {open, at(1, 5), Post{Producer: at(2, 0), Body: body, Type: kind}, postAppend, nil},
		"a producer begins":               {open, nil, Post{Producer: at(7, 0), Body: body, Type: kind}, postAppend, nil},
		"a producer begins at 1":          {open, nil, Post{Producer: at(0, 1), Body: body, Type: kind}, 0, &GapError{0, 1}},
		"a gap":                           {open, at(0, 1), Post{Producer: at(0, 3), Body: body, Type: kind}, 0, &GapError{2, 3}},
		"a gap, closed":                   {closed, at(0, 1), Post{Producer: at(0, 3), Body: body, Type: kind}, 0, &ClosedError{9}},
		"the next":                        {open, at(0, 1), Post{Producer: at(0, 2), Body: body, Type: kind}, postAppend, nil},
		"the next, closed":                {closed, at(0, 1), Post{Producer: at(0, 2), Body: body, Type: kind}, 0, &ClosedError{9}},
		"again":                           {open, at(0, 1), Post{Producer: at(0, 1), Body: body, Type: kind}, postDuplicate, nil},
		"again, another type":             {open, at(0, 1), Post{Producer: at(0, 1), Body: body, Type: "a/b"}, postDuplicate, nil},
		"an earlier one again":            {open, at(0, 4), Post{Producer: at(0, 1), Body: body, Type: kind}, postDuplicate, nil},
		"again, closed":                   {closed, at(0, 1), Post{Producer: at(0, 1), Body: body, Type: kind}, postDuplicate, nil},
		"the close again":                 {closedBy(at(0, 1)), at(0, 1), Post{Producer: at(0, 1), Close: true}, postDuplicate, nil},
		"again, with a close":             {open, at(0, 1), Post{Producer: at(0, 1), Close: true}, postDuplicate, nil},
		"a close of another's":            {closedBy(at(0, 2)), at(0, 2), Post{Producer: at(0, 1), Close: true}, 0, &ClosedError{9}},
		"a close that nobody's closed":    {closed, at(0, 1), Post{Producer: at(0, 1), Close: true}, 0, &ClosedError{9}},
		"a close by a producer, closed":   {closed, nil, Post{Producer: at(0, 0), Close: true}, 0, &ClosedError{9}},
		"a close, closed":                 {closed, nil, Post{Close: true}, postNothing, nil},
		"a close with a body, closed":     {closed, nil, Post{Close: true, Body: body, Type: kind}, 0, &ClosedError{9}},
		"a body, closed":                  {closed, nil, Post{Body: body, Type: kind}, 0, &ClosedError{9}},
		"a body of another type, closed":  {closed, nil, Post{Body: body, Type: "a/b"}, 0, &ClosedError{9}},
		"a body of another type":          {open, nil, Post{Body: body, Type: "a/b"}, 0, &TypeError{Type: kind}},
		"a body without a type":           {open, nil, Post{Body: body}, 0, &TypeError{Type: kind}},
		"a body":                          {open, nil, Post{Body: body, Type: kind}, postAppend, nil},
		"a close":                         {open, nil, Post{Close: true}, postAppend, nil},
		"a close of another type":         {open, nil, Post{Close: true, Type: "a/b"}, postAppend, nil},
		"the next, of another type":       {open, at(0, 1), Post{Producer: at(0, 2), Body: body, Type: "a/b"}, 0, &TypeError{Type: kind}},
		"a gap comes before another type": {open, at(0, 1), Post{Producer: at(0, 3), Body: body, Type: "a/b"}, 0, &GapError{2, 3}},
	} {
		got, err := tt.post.decide(tt.stream, 9, tt.last)
		if got != tt.want || !equalErrors(err, tt.err) {
			t.Errorf("%s: got %v, %v, want %v, %v", name, got, err, tt.want, tt.err)
		}
	}
}

// equalErrors reports whether two errors are one value, or of one type with equal fields.
func equalErrors(a, b error) bool { return errors.Is(a, b) || reflect.DeepEqual(a, b) }

func TestNextState(t *testing.T) {
	then, now := time.Unix(1, 0), time.Unix(2, 0)
	p := &Producer{ID: "p"}
	for name, tt := range map[string]struct {
		state Meta
		post  Post
		want  Meta
		err   error
	}{
		"nothing":              {Meta{Seq: "a"}, Post{}, Meta{Seq: "a"}, nil},
		"the first Seq":        {Meta{}, Post{Seq: "a"}, Meta{Seq: "a"}, nil},
		"a later Seq":          {Meta{Seq: "a"}, Post{Seq: "b"}, Meta{Seq: "b"}, nil},
		"the same Seq":         {Meta{Seq: "a"}, Post{Seq: "a"}, Meta{Seq: "a"}, ErrSeq},
		"an earlier Seq":       {Meta{Seq: "b"}, Post{Seq: "a"}, Meta{Seq: "b"}, ErrSeq},
		"closed":               {Meta{}, Post{Close: true}, Meta{Closed: true}, nil},
		"closed by a producer": {Meta{}, Post{Close: true, Producer: p}, Meta{Closed: true, ClosedBy: p}, nil},
		"used":                 {Meta{HasTTL: true, Used: then}, Post{}, Meta{HasTTL: true, Used: now}, nil},
		"refused is not used":  {Meta{HasTTL: true, Used: then, Seq: "b"}, Post{Seq: "a"}, Meta{HasTTL: true, Used: then, Seq: "b"}, ErrSeq},
		"not used":             {Meta{Used: then}, Post{}, Meta{Used: then}, nil},
	} {
		got, err := tt.post.next(tt.state, now)
		if diff := cmp.Diff(tt.want, got); diff != "" || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}
