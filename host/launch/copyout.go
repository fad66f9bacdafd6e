package launch

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
)

// copyOutFor is how long it may take to get a folder out of a box.
const copyOutFor = 30 * time.Minute

// pack says nothing of a folder that it could not read whole: what is missing then is not gone.
const pack = `f="$HOME/` + folderArchive + `"; mkdir -p "$HOME/.arbe" && tar -czf "$f" . && base64 "$f"; s=$?; rm -f "$f"; exit $s`

// CopyOut makes the folder what the box's working directory is, but for what is excluded on either side: new and changed files come, and those that are gone in the box
// go. A file comes whole or not at all. Nothing outside of the folder is touched, whatever the box says.
func (d Folder) CopyOut(ctx context.Context, box sandbox.Sandbox) error {
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := d.unpack(base64.NewDecoder(base64.StdEncoding, out))
		done <- errors.Join(err, out.CloseWithError(err)) // so that the sender stops, too
	}()
	res, err := box.Exec(ctx, sandbox.Command{
		Argv: []string{"sh", "-c", pack}, Timeout: copyOutFor, MaxOutput: 4 << 10,
		Output: func(s sandbox.Stream, b []byte) {
			if s == sandbox.Stdout {
				_, _ = in.Write(b) // where the reader has failed, its own error is the one
			}
		},
	})
	switch {
	case err != nil:
	case res.TimedOut:
		err = fmt.Errorf("not done after %v", res.Duration.Round(time.Second))
	case res.ExitCode != 0:
		err = fmt.Errorf("exit status %d: %s", res.ExitCode, strings.TrimSpace(string(res.Stderr)))
	}
	if err != nil {
		_ = in.CloseWithError(err)
	} else {
		err = in.Close()
	}
	return errors.Join(err, <-done)
}

// unpack makes the folder what the archive says.
func (d Folder) unpack(r io.Reader) error {
	root, err := os.OpenRoot(d.Path)
	if err != nil {
		return err
	}
	defer root.Close() // what was written is closed by itself
	zip, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("the box's folder: %w", err)
	}
	came := map[string]bool{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, zip) // its checksum stands at the end
			if err == nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("the box's folder: %w", err)
		}
		name := filepath.Clean(filepath.FromSlash(header.Name))
		if out, err := d.hidden(name); err != nil || out || name == "." {
			if err != nil {
				return err
			}
			continue
		}
		if came[name] = true; header.FileInfo().IsDir() {
			err = root.MkdirAll(name, 0o755)
		} else {
			err = place(root, name, header, archive)
		}
		if err != nil {
			return err
		}
	}
	return d.removeOthers(root, came)
}

// hidden reports whether a path, or a folder that it is in, is excluded.
func (d Folder) hidden(name string) (bool, error) {
	for p := filepath.ToSlash(name); p != "." && p != "/"; p = filepath.ToSlash(filepath.Dir(p)) {
		if out, err := d.excluded(p); err != nil || out {
			return out, err
		}
	}
	return false, nil
}

// place makes one file or link, whole or not at all.
func place(root *os.Root, name string, header *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(name), ".arbe-"+filepath.Base(name))
	switch header.Typeflag {
	case tar.TypeSymlink:
		if err := root.Symlink(header.Linkname, tmp); err != nil {
			return err
		}
	case tar.TypeReg:
		f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, header.FileInfo().Mode().Perm())
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err = errors.Join(err, f.Close()); err == nil {
			err = root.Chmod(tmp, header.FileInfo().Mode().Perm())
		}
		if err != nil {
			return errors.Join(err, root.Remove(tmp))
		}
	default: // a socket, a device: nothing that work is made of
		return nil
	}
	if err := root.Rename(tmp, name); err != nil {
		return errors.Join(err, root.Remove(tmp))
	}
	return nil
}

// removeOthers removes what is in the folder and did not come, the deepest first.
func (d Folder) removeOthers(root *os.Root, came map[string]bool) error {
	var others []string
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if out, err := d.excluded(name); err != nil || out {
			if out && entry.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		if !came[filepath.FromSlash(name)] {
			others = append(others, name)
		}
		return nil
	})
	errs := []error{err}
	for _, name := range slices.Backward(others) {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			if entries, readErr := fs.ReadDir(root.FS(), name); readErr == nil && len(entries) > 0 {
				continue // it has something that is excluded
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
