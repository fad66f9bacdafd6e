//go:build !unix

package session

import (
	"errors"
	"os"
)

const neverBlock = 0

// duplicate returns errors.ErrUnsupported: no agent is mirrored here.
func duplicate(*os.File) (*os.File, error) { return nil, errors.ErrUnsupported }

// identity returns "".
func identity(os.FileInfo) string { return "" }
