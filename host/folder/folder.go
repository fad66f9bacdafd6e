// Package folder copies a folder of this machine into a box, and merges the box's copy back.
//
// CopyIn sends the folder and returns the Manifest of what was sent: the base of the merge. Sync.Pull compares base,
// folder and box, path by path: a change on one side is taken, and where both sides changed differently, the folder
// keeps its own version and gets the box's beside it, as NAME.box.
//
// Guarantees of Pull: it changes nothing outside of the folder and follows no link in it. It replaces and deletes only
// what is as it was sent. It applies nothing before all that it needs of the box is here, checked by length and
// SHA-256. Killed at any moment, it has left each path in its old or its new state, and the next Pull finishes the
// rest. Files that the box did not change are not touched: inode, times and links stay.
//
// The box needs a POSIX shell, GNU find, GNU tar, gzip and GNU coreutils. Not copied in either direction: owners, times
// (but modification times into the box), extended attributes, set-id bits, and what is no file, folder or link. Memory
// grows with the number of paths, about 1.3 KiB each, and not with their size.
package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Folder is a folder of this machine that a box gets a copy of, in its working directory.
type Folder struct {
	Path string
	// Exclude are patterns of paths that are not copied, in either direction. The syntax is that of .gitignore; a
	// leading ./ anchors a pattern as a leading / does.
	Exclude []string
}

// Check returns an error where the folder is none, or a pattern is malformed.
func (f Folder) Check() error {
	st, err := os.Stat(f.Path)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is no folder", f.Path)
	}
	if err != nil {
		return err
	}
	_, err = newMatcher(f.Exclude)
	return err
}

// Box is what CopyIn needs of a box: a sandbox.Sandbox has it.
type Box interface {
	Home() string
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	Upload(ctx context.Context, files ...sandbox.File) error
}

// Source is what Pull needs of a box beside that.
type Source interface {
	Box
	Download(ctx context.Context, path string, w io.Writer) error
}

// Time limits of what runs in a box.
const (
	scriptTimeout = time.Hour   // of a script that reads or writes the whole folder
	tidyTimeout   = time.Minute // of removing temporary files
)

// archiveIn is the path of the copy in the box's home folder, on its way in.
const archiveIn = ".arbe/folder.tgz"

// unpackScript extracts with the modes that were sent, whatever the umask, and as the box's user.
const unpackScript = `tar -xzpf "$1" --no-same-owner; s=$?; rm -f "$1"; exit $s`

// CopyIn copies the folder into the box's working directory, and returns the manifest of exactly what was sent. Files
// of the box that the folder has, too, are overwritten. The folder may be in use: a file that changes while it is read
// is read again, and sent as it was at the last read. A file that can't be read is an error.
func (f Folder) CopyIn(ctx context.Context, box Box) (m Manifest, err error) {
	tmp, err := os.CreateTemp("", "arbe-folder-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tmp.Close()) }()
	if err := os.Remove(tmp.Name()); err != nil { // the open file stays until it is closed
		return nil, err
	}
	if m, err = f.pack(ctx, tmp); err != nil {
		return nil, err
	}
	size, err := tmp.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	file := sandbox.File{Path: archiveIn, InHome: true, Content: tmp, Size: size, Mode: 0o600}
	if err := box.Upload(ctx, file); err != nil {
		return nil, err
	}
	if _, err := script(ctx, box, scriptTimeout, unpackScript, box.Home()+"/"+archiveIn); err != nil {
		return nil, fmt.Errorf("unpack in the box: %w", err)
	}
	return m, nil
}

// script runs a shell script in the box's working directory and returns its standard output. An exit status other than
// 0 is an error with the end of its standard error.
func script(
	ctx context.Context, box Box, limit time.Duration, text string, args ...string,
) (string, error) {
	argv := append([]string{"sh", "-c", text, "sh"}, args...)
	res, err := box.Exec(ctx, sandbox.Command{Argv: argv, Timeout: limit})
	switch {
	case err != nil:
		return "", err
	case res.TimedOut:
		return "", fmt.Errorf("not finished after %v", res.Duration.Round(time.Second))
	case res.ExitCode != 0:
		words := strings.TrimSpace(string(res.Stderr))
		return "", fmt.Errorf("exit status %d: %s", res.ExitCode, words[max(0, len(words)-2000):])
	}
	return string(res.Stdout), nil
}
