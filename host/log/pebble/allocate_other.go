//go:build !linux

package pebble

import (
	"errors"
	"os"
)

// allocate returns errors.ErrUnsupported.
func allocate(*os.File, int64) error { return errors.ErrUnsupported }
