package pebble

// MostFiles returns how many files the engine opens at most in a process that may open files files: a quarter of them,
// but at least 74 and at most 1000.
func MostFiles(files int) int { return min(max(files/4, leastFiles), 1000) }

// leastFiles is the least that Pebble works with: 64 tables, and 10 files of its own.
const leastFiles = 74
