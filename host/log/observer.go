package log

import "time"

// Observer receives what a log counts, so that a server can measure it. Its methods may be called at the same time.
type Observer interface {
	// Appended reports a durable append: its new entries, those that existed before, the bytes of the new ones, and
	// how long it took.
	Appended(entries, duplicates, bytes int, took time.Duration)
	// Conflicted reports entries that were refused because their ids are taken.
	Conflicted(entries int)
	// Expired reports a stream that was deleted because its time was over.
	Expired()
	// Deleted reports a stream that a caller of Delete deleted.
	Deleted()
}

// unobserved is the Observer of a log without one.
type unobserved struct{}

func (unobserved) Appended(int, int, int, time.Duration) {}
func (unobserved) Conflicted(int)                        {}
func (unobserved) Expired()                              {}
func (unobserved) Deleted()                              {}
