package log

import (
	"errors"
	"fmt"

	"arbe.0sk.ar/runner/thread"
)

// Errors without details.
var (
	// ErrAbsent is the error of a stream that does not exist or has expired.
	ErrAbsent = errors.New("there is no such stream")
	// ErrGone is the error of a thread that was deleted, whose name is not given again, and of any other stream that
	// was deleted and is kept for its forks.
	ErrGone = errors.New("the stream was deleted, and its name stays taken")
	// ErrKept is Create's error for the name of a stream, but a thread, that was deleted and is kept for its forks.
	ErrKept = errors.New("the stream was deleted, and is kept for its forks")
	// ErrThreadClose is Post's error for a request to close a thread.
	ErrThreadClose = errors.New("a thread is never closed: its run's end may still be on its way")
	// ErrEmpty is the error of a body that is a JSON array without elements.
	ErrEmpty = errors.New("the array is empty")
	// ErrSeq is Post's error for a Seq that does not sort after the stream's last one.
	ErrSeq = errors.New("the sequence string is not above the last one")
	// ErrEpoch is Post's error for a producer's new epoch that does not begin with Seq 0.
	ErrEpoch = errors.New("a producer's new epoch begins with sequence number 0")
	// ErrForkLarge is Create's error for a fork that would copy more than MaxMessages or MaxForkCopy.
	ErrForkLarge = errors.New("the fork would copy too much of its source")
	// ErrForkShort is Create's error for a fork that would copy more than its source has.
	ErrForkShort = errors.New("the fork's source ends before the place to fork at")
)

// ConflictError lists entries whose ids are taken by entries with other payloads.
type ConflictError struct{ Entries []thread.BadEntry }

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%d of the ids are taken by other payloads", len(e.Entries))
}

// Reason is why entries are refused.
type Reason int

// Reasons to refuse an entry.
const (
	Invalid     Reason = iota // the entry is malformed
	TooLarge                  // the entry is larger than thread.MaxEntry
	WrongRun                  // the entry belongs to another run than the writer's
	WrongAuthor               // the entry has another author than the writer's
)

// EntriesError lists entries that are refused for one reason. Nothing of their post was appended.
type EntriesError struct {
	Reason  Reason
	Entries []thread.BadEntry
}

// Error implements error.
func (*EntriesError) Error() string { return "entries are refused, and none was appended" }

// SyntaxError is the error of a body that is not JSON, or JSON that not every reader can decode.
type SyntaxError struct {
	what string
	err  error
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("the body is %s: %v", e.what, e.err) }

// Unwrap returns the parser's error.
func (e *SyntaxError) Unwrap() error { return e.err }

// CountError is the error of a body that is a JSON array of more than Most elements.
type CountError struct{ Most int }

// Error implements error.
func (e *CountError) Error() string {
	return fmt.Sprintf("the array has more than %d elements", e.Most)
}

// SizeError is the error of a message of more than thread.MaxEntry bytes.
type SizeError struct{ Bytes int }

// Error implements error.
func (e *SizeError) Error() string {
	return fmt.Sprintf("a message has %d bytes, more than %d", e.Bytes, thread.MaxEntry)
}

// QuotaError is the error of an append that a stream has no room for.
type QuotaError struct{ Quota int64 }

// Error implements error.
func (e *QuotaError) Error() string {
	return fmt.Sprintf("the stream would hold more than %d bytes, which is its quota", e.Quota)
}

// StaleEpochError is Post's error for a producer that has a later epoch, which is Epoch.
type StaleEpochError struct{ Epoch int64 }

// Error implements error.
func (*StaleEpochError) Error() string { return "the producer has a later epoch" }

// GapError is Post's error for a producer's request that skips earlier ones.
type GapError struct {
	Want int64 // sequence number of the producer's next request
	Got  int64 // sequence number of this one
}

// Error implements error.
func (*GapError) Error() string { return "requests of the producer are missing before this one" }

// ClosedError is Post's error for a stream that was closed at the offset Tail.
type ClosedError struct{ Tail uint64 }

// Error implements error.
func (*ClosedError) Error() string { return "the stream is closed" }

// TypeError is the error of a request with another content type than its stream's.
type TypeError struct {
	Source string // the stream to fork from; "" for the request's own
	Type   string // the stream's content type
}

// Error implements error.
func (e *TypeError) Error() string {
	if e.Source != "" {
		return fmt.Sprintf("the stream %s is %s", e.Source, e.Type)
	}
	return "the stream is " + e.Type
}

// ExistsError is Create's error for a stream that exists and differs from the wanted one in Differs.
type ExistsError struct{ Differs string }

// Error implements error.
func (e *ExistsError) Error() string { return "the stream is there with another " + e.Differs }

// SourceError is Create's error for a stream that can't be forked from.
type SourceError struct {
	Stream string
	Err    error // ErrAbsent, ErrGone, or why the fork's source was lost while the fork was made
}

// Error implements error.
func (e *SourceError) Error() string {
	switch e.Err {
	case ErrAbsent:
		return fmt.Sprintf("there is no stream %s to fork from", e.Stream)
	case ErrGone:
		return fmt.Sprintf("the stream %s was deleted", e.Stream)
	}
	return e.Err.Error()
}

// ForkError is Create's error for a fork behind its source's end, which is Tail, or with more than MaxForkDepth
// streams below it.
type ForkError struct{ Tail uint64 }

// Error implements error.
func (e *ForkError) Error() string {
	return fmt.Sprintf("want an offset up to %d, and at most %d forks of forks", e.Tail, MaxForkDepth)
}

// undeletedError is the error of a stream that has expired and could not be deleted. For a reader it is absent.
type undeletedError struct{ cause error }

func (e *undeletedError) Error() string        { return "delete an expired stream: " + e.cause.Error() }
func (e *undeletedError) Unwrap() error        { return e.cause }
func (e *undeletedError) Is(target error) bool { return target == ErrAbsent }
