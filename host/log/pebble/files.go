package store

import "golang.org/x/sys/unix"

// MostFiles returns how many files the Pebble engine keeps open at most, of the limit files of the process: a quarter,
// within what it needs and what is of use to it.
func MostFiles(files int) int { return min(max(files/4, leastFiles), 1000) }

// leastFiles are the least that Pebble works with: 64 tables, and 10 for its own.
const leastFiles = 74

// FileLimit returns how many files this process may have open at the same time.
func FileLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // it can't fail; this is what most systems have
	}
	return int(min(limit.Cur, 1<<30))
}
