package cmdline

import (
	"errors"
	"fmt"
	"io/fs"
)

// StatusNoInput is the exit status where a file or folder that is to be read is not there, or can't be read
// (EX_NOINPUT).
const StatusNoInput = 66

// Unread returns an error with the place on the command line that names a file. Its status is StatusNoInput if the file
// is not there or can't be read, and else StatusUsage; an Exit keeps its own.
func Unread(place string, err error) error {
	if place != "" {
		err = fmt.Errorf("%s: %w", place, err)
	}
	var path *fs.PathError
	var exit *Exit
	switch {
	case errors.As(err, &exit):
		return err
	case errors.As(err, &path):
		return &Exit{StatusNoInput, err}
	}
	return &Exit{StatusUsage, err}
}
