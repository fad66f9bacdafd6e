package pebble

// MostFiles returns how many files the engine keeps open at most, of the limit files of the process: a quarter,
// within what it needs and what is of use to it.
func MostFiles(files int) int { return min(max(files/4, leastFiles), 1000) }

// leastFiles are the least that Pebble works with: 64 tables, and 10 for its own.
const leastFiles = 74
