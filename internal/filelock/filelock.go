// Package filelock locks files against other processes. The system releases a lock when its holder dies.
package filelock

import "errors"

// ErrLocked is the error of a file that another process, or another open file of this one, has locked.
var ErrLocked = errors.New("locked by another process")
