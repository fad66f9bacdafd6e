package pebble

import "fmt"

// BusyError is the error of Open for a store that another process has open.
type BusyError struct {
	PID int // of that process; 0 if this process can't see it
	Err error
}

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("another process has it open: %v", e.Err)
	}
	return fmt.Sprintf("process %d has it open: %v", e.PID, e.Err)
}

// Unwrap returns Pebble's error.
func (e *BusyError) Unwrap() error { return e.Err }
