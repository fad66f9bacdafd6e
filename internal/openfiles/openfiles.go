// Package openfiles returns how many files this process may have open.
package openfiles

import "golang.org/x/sys/unix"

// Limit is the soft limit of open files of this process, at most 1<<30.
func Limit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // Getrlimit fails for a bad argument only; this is what most systems have
	}
	return int(min(limit.Cur, 1<<30))
}
