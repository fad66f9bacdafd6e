//go:build !unix

package metrics

// diskRoom returns -1: the system does not report the free bytes and the size of the disk.
func diskRoom(string) (free, size float64) { return -1, -1 }
