// Package folder copies a folder of this machine into a box, and merges the box's copy back.
//
// CopyIn sends the folder and returns the Manifest of the files sent: the base of the merge. Sync.Pull compares base,
// folder and box, path by path. It applies a change of one side. If both sides changed a path differently, the folder
// keeps its own version and gets the box's beside it, as NAME.box.
//
// Guarantees of Pull: it changes nothing outside of the folder and follows no link in it. It replaces and deletes a
// path only in the state in which it was sent. It applies no change before it has downloaded everything and checked
// length and SHA-256. Killed at any moment, it leaves each path in its old or its new state, and the next Pull
// finishes. Files that the box did not change keep inode, times and links.
//
// The box needs a POSIX shell, GNU find, GNU tar, gzip and GNU coreutils. Not copied in either direction: owners, times
// (except modification times into the box), extended attributes, set-id bits, and special files. Memory grows with the
// number of paths, about 1.3 KiB each, and not with their size.
package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Folder is a folder of this machine whose copy is the working directory of a box.
type Folder struct {
	Path string
	// Exclude are patterns of paths that are not copied, in either direction. The syntax is that of .gitignore; a
	// leading ./ anchors a pattern as a leading / does.
	Exclude []string

	reading func(name string) // called before CopyIn reads a path, only in tests; nil for none
}

// Check returns an error if Path is not a folder, or a pattern is malformed.
func (f Folder) Check() error {
	st, err := os.Stat(f.Path)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is not a folder", f.Path)
	}
	if err != nil {
		return err
	}
	_, err = newMatcher(f.Exclude)
	return err
}

// Box is the part of a sandbox.Sandbox that scripts need.
type Box interface {
	Home() string
	Exec(ctx context.Context, c sandbox.Command) (sandbox.Result, error)
	Upload(ctx context.Context, files ...sandbox.File) error
}

// Source is the part of a sandbox.Sandbox that CopyIn and Pull need.
type Source interface {
	Box
	WorkDir() string
	Download(ctx context.Context, path string, w io.Writer) error
}

// Time limits of scripts in a box.
const (
	scriptTimeout = time.Hour   // of a script that reads or writes the whole folder
	tidyTimeout   = time.Minute // of removing temporary files
)

// archiveIn is the path of the copy in the box's home folder, on its way in.
const archiveIn = ".arbe/folder.tgz"

// unpackScript extracts with the modes that were sent, whatever the umask, and as the box's user.
const unpackScript = `tar -xzpf "$1" --no-same-owner; s=$?; rm -f "$1"; exit $s`

// CopyIn copies the folder into the box's working directory, and returns what exactly it has sent. It overwrites files
// of the box. The folder may be in use: a file that changes while it is read is read again, and sent as of the last
// read, and a repository is sent as of one moment. A file that can't be read is an error.
func (f Folder) CopyIn(ctx context.Context, box Source) (b Base, err error) {
	m, err := f.send(ctx, box)
	if err != nil {
		return Base{}, err
	}
	dirs := repositories(m)
	if len(dirs) == 0 {
		return Base{Manifest: m}, nil
	}
	tmp, err := os.MkdirTemp("", "arbe-folder-")
	if err != nil {
		return Base{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	r, err := newRemote(box, tmp)
	if err != nil {
		return Base{}, err
	}
	defer r.tidy(ctx)
	states, err := r.states(ctx, dirs)
	return Base{m, states}, err
}

// send copies the files into the box.
func (f Folder) send(ctx context.Context, box Box) (m Manifest, err error) {
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

// script runs a shell script in the box's working directory and returns its standard output.
func script(ctx context.Context, box Box, limit time.Duration, text string, args ...string) (string, error) {
	res, err := sandbox.Shell(ctx, box, sandbox.Command{Timeout: limit}, text, args...)
	return string(res.Stdout), err
}
