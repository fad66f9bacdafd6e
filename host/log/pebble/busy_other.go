//go:build !unix

package pebble

// busy returns err: the system does not report who has a file open.
func busy(_ string, err error) error { return err }
