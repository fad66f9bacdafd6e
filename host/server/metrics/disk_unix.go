//go:build unix

package metrics

import "syscall"

// diskRoom returns the free bytes and the size of the disk with dir; -1 where the system does not report them.
func diskRoom(dir string) (free, size float64) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return -1, -1
	}
	return float64(st.Bavail) * float64(st.Bsize), float64(st.Blocks) * float64(st.Bsize)
}
