// Package format is the one rule for what arbe keeps in a numbered format: the log, a backup, a cluster, the folder of
// a run. Data without a number is of format 1. Data of a later format than this program knows stays as it is, and its
// error is ErrLater, with which both programs end with status 78.
package format

import (
	"errors"
	"fmt"
)

// ErrLater is the error of data whose format this program does not know.
var ErrLater = errors.New("written by a later arbe")

// Check returns an error with ErrLater where what has a later format than this program knows.
func Check(what string, has, knows int) error {
	if has > knows {
		return fmt.Errorf("%s was %w (format %d; this one knows %d): upgrade", what, ErrLater, has, knows)
	}
	return nil
}
