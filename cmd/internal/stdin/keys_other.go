//go:build !linux && !darwin

package stdin

import (
	"errors"
	"os"
)

// keys is a terminal that gives keys: there is none on this system.
type keys struct{}

func takeKeys(*os.File) (*keys, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (*keys) Close() error { return nil }

// readable can't find out.
func readable(*os.File) bool { return false }
