package log

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/thread"
)

// Want is the stream that Create makes or finds.
type Want struct {
	Type    string     // content type; "" for the source's, or application/octet-stream without a source
	TTL     *int64     // seconds since its last use after which it expires; nil for none
	Expires *time.Time // when it expires; nil for never
	Closed  bool
	Source  string  // name of the stream to fork from; "" for none
	At      *uint64 // offset to fork at; nil for the source's end
	Sub     uint64  // messages, or bytes, behind At to copy from the source
	Body    []byte  // its first content
	Writer  Writer  // of a thread's entries
}

// MaxForkDepth bounds how many streams a read goes through.
const MaxForkDepth = 64

// Create makes a stream and reports true, or finds it as it is wanted. It returns ErrGone, ErrKept, an *ExistsError,
// *SourceError, *TypeError, *ForkError, ErrForkLarge, ErrForkShort, a *QuotaError, or an error of the body, and has
// made nothing then.
func (l *Log) Create(ctx context.Context, name string, want Want) (v Stream, made bool, err error) {
	v, err = l.Stat(ctx, name)
	if free, err := want.decide(v, err); err != nil || !free {
		return v, false, err
	}
	m := want.fresh(time.Now())
	var copied []engine.Record
	if want.Source != "" {
		if copied, err = l.branch(ctx, want, &m); err != nil {
			return v, false, err
		}
	}
	if isThread(name) {
		m.Type = typeJSON
	}
	records, err := cut(m.Type, want.Body, true)
	if err != nil {
		return v, false, err
	}
	m.Born = born()
	if m.Fork != nil {
		switch err := l.setFork(ctx, want.Source, name, []byte(m.Born)); {
		case errors.Is(err, ErrAbsent):
			return v, false, &SourceError{want.Source, ErrAbsent}
		case err != nil:
			return v, false, err
		}
	}
	head, err := l.update(ctx, name, func(head engine.Head) (*engine.Append, error) {
		made = !head.Exists()
		return l.begin(ctx, name, want, head, m, append(copied, records...))
	})
	if err != nil {
		return v, false, err
	}
	v, err = newStream(name, head)
	switch {
	case err != nil:
		return v, false, err
	case !made:
		return v, false, want.same(v)
	case v.Fork != nil:
		// Until the fork existed, a delete of its source did not see it.
		if _, err := l.source(ctx, v); err != nil {
			err = errors.Join(err, l.drop(ctx, name, func(v Stream) bool { return v.Born == m.Born }))
			return v, false, &SourceError{want.Source, err}
		}
	}
	return v, true, nil
}

// begin returns the first append of the stream with state m and these records, or a thread's entries; nil for a stream
// that was made since Stat.
func (l *Log) begin(
	ctx context.Context, name string, want Want, head engine.Head, m Meta, records []engine.Record,
) (*engine.Append, error) {
	switch v, err := newStream(name, head); {
	case err != nil:
		return nil, err
	case v.Gone:
		return nil, gone(name) // deleted since Stat
	case head.Exists():
		return nil, nil
	}
	a := &engine.Append{State: m.state(), Records: records}
	if !isThread(name) {
		return a, nil
	}
	entries, err := parseInitial(want.Body, want.Writer)
	if err != nil {
		return nil, err
	}
	v := Stream{Name: name, head: head, Meta: m}
	err = l.addEntries(ctx, &v, a, entries, &Appended{})
	a.State = v.state()
	return a, err
}

// decide is the table of a PUT. v and err are the result of Stat for the name. It reports whether to make the stream.
//
//	the name's stream                    wanted             result
//	absent, or expired and deleted       any                to be made
//	expired, and can't be deleted        any                why not
//	a thread that was deleted            any                ErrGone
//	deleted, and kept for its forks      any                ErrKept
//	a thread                             a thread           found
//	another, equal in its properties     any                found
//	another, differs in one              any                *ExistsError
//	unknown: the engine failed           any                the engine's error
func (want Want) decide(v Stream, err error) (free bool, _ error) {
	var undeleted *undeletedError
	switch {
	case err == nil:
		return false, want.same(v)
	case errors.As(err, &undeleted):
		return false, undeleted.cause
	case errors.Is(err, ErrGone):
		return false, gone(v.Name)
	case errors.Is(err, ErrAbsent):
		return true, nil
	}
	return false, err
}

// gone returns Create's error for the name of a stream that was deleted.
func gone(name string) error {
	if isThread(name) {
		return ErrGone
	}
	return ErrKept
}

// same returns why a stream that exists is not the wanted one, as an *ExistsError. A fork takes its type and lifetime
// from its source where the request has none, so they are compared only where it has one.
func (want Want) same(v Stream) error {
	if isThread(v.Name) {
		return nil
	}
	m, forks := want.fresh(time.Time{}), want.Source != ""
	from := cmp.Or(v.Fork, &Fork{})
	typed, lifetime := want.Type != "" || !forks, want.TTL != nil || want.Expires != nil || !forks
	for _, property := range []struct {
		name    string
		differs bool
	}{
		{"content type", typed && m.Type != v.Type},
		{"end", m.Closed != v.Closed},
		{"lifetime", lifetime && (m.HasTTL != v.HasTTL || m.TTL != v.TTL)},
		{"lifetime", lifetime && !sameTime(m.Expires, v.Expires)},
		{"origin", forks != (v.Fork != nil)},
		{"origin", forks && want.Source != from.From},
		{"origin", forks && want.Sub != from.Sub},
		{"origin", forks && want.At != nil && *want.At != from.At},
	} {
		if property.differs {
			return &ExistsError{property.name}
		}
	}
	return nil
}

// sameTime reports whether two times are equal, or both nil.
func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

// fresh returns the state of the wanted stream as of now, without what it takes from a source.
func (want Want) fresh(now time.Time) Meta {
	m := Meta{Type: cmp.Or(want.Type, "application/octet-stream"), Closed: want.Closed, Expires: want.Expires}
	if want.TTL != nil {
		m.TTL, m.HasTTL, m.Used = *want.TTL, true, now
	}
	return m
}

// branch makes m, the state of the wanted stream, that of a fork, and returns the records to copy from the source.
func (l *Log) branch(ctx context.Context, want Want, m *Meta) ([]engine.Record, error) {
	source, err := l.Stat(ctx, want.Source)
	if *m, err = want.fork(*m, source, err, time.Now()); err != nil {
		return nil, err
	}
	return l.copySub(ctx, source, m.Fork)
}

// fork is the table of a PUT that forks. source and err are the result of Stat for the source. It returns m, the state
// of the wanted stream, with the properties that it takes from the source. The first row that fits holds.
//
//	source                      request                                result
//	absent or expired           any                                    *SourceError with ErrAbsent
//	deleted                     any                                    *SourceError with ErrGone
//	unknown                     any                                    the engine's error
//	exists                      has another type                       *TypeError
//	exists                      At is behind its end                   *ForkError
//	exists, MaxForkDepth deep   any                                    *ForkError
//	exists                      without a lifetime                     a fork with the source's lifetime
//	exists                      any                                    a fork
func (want Want) fork(m Meta, source Stream, err error, now time.Time) (Meta, error) {
	switch {
	case errors.Is(err, ErrAbsent):
		return m, &SourceError{want.Source, ErrAbsent}
	case errors.Is(err, ErrGone):
		return m, &SourceError{want.Source, ErrGone}
	case err != nil:
		return m, err
	}
	if want.Type != "" && want.Type != source.Type {
		return m, &TypeError{Source: want.Source, Type: source.Type}
	}
	m.Type = source.Type
	if want.TTL == nil && want.Expires == nil {
		m.TTL, m.HasTTL, m.Expires, m.Used = source.TTL, source.HasTTL, source.Expires, now
	}
	f := &Fork{From: want.Source, Born: source.Born, At: source.Tail(), Sub: want.Sub, Depth: 1}
	if source.Fork != nil {
		f.Depth = source.Fork.Depth + 1
	}
	if want.At != nil {
		f.At = *want.At
	}
	if f.At > source.Tail() || f.Depth > MaxForkDepth {
		return m, &ForkError{source.Tail()}
	}
	m.Fork = f
	return m, nil
}

// MaxForkCopy is how many bytes of its source a fork may copy; MaxMessages bounds the messages. A client that wants
// more names a later offset: a stream of bytes has one for each of its pieces.
const MaxForkCopy = 8 << 20

// copySub returns the first f.Sub messages, or bytes, of the source behind f.At.
func (l *Log) copySub(ctx context.Context, source Stream, f *Fork) ([]engine.Record, error) {
	var copied []engine.Record
	left, after, size := f.Sub, f.At, 0
	if source.IsJSON() && left > MaxMessages || !source.IsJSON() && left > MaxForkCopy {
		return nil, ErrForkLarge
	}
	for left > 0 {
		records, err := l.Read(ctx, source, after, source.Tail(), readAtOnce)
		if err != nil {
			return nil, err
		}
		if len(records) == 0 {
			return nil, ErrForkShort
		}
		for _, r := range records {
			after = r.Seq
			n := uint64(1)
			if !source.IsJSON() {
				n = min(left, uint64(len(r.Data)))
				r.Data = r.Data[:n]
			}
			if left == 0 {
				break
			}
			if size += len(r.Data); size > MaxForkCopy {
				return nil, ErrForkLarge
			}
			copied = append(copied, engine.Record{At: r.At, Data: r.Data})
			left -= n
		}
	}
	return copied, nil
}

// parseInitial parses the entries that a thread is made with.
func parseInitial(body []byte, w Writer) ([]thread.Entry, error) {
	if len(bytes.TrimSpace(body)) == 0 || string(bytes.TrimSpace(body)) == "[]" {
		return nil, nil
	}
	entries, err := ParseEntries(body, w)
	if err != nil {
		return nil, fmt.Errorf("the thread's first entries: %w", err)
	}
	return entries, nil
}
