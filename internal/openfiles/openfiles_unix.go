//go:build unix

package openfiles

import "golang.org/x/sys/unix"

// Limit returns the soft limit of open files of this process, at most 1<<30.
func Limit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return common // Getrlimit fails for a bad argument only
	}
	return int(min(limit.Cur, 1<<30))
}
