package launch

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"arbe.0sk.ar/runner/host/sandbox"
)

// Folder is a folder of this machine that a box gets a copy of, in its working directory.
type Folder struct {
	Path    string
	Exclude []string // patterns as path.Match takes them, for a name anywhere below the folder or for a path from it
}

// folderArchive is where the copy travels, in the box's home folder.
const folderArchive = ".arbe/folder.tgz"

// copyIn copies a folder into the box's working directory. It goes through a file, so that no part of it is ever held in memory.
func (g *launching) copyIn(ctx context.Context, box sandbox.Sandbox) (err error) {
	dir := *g.Dir
	tmp, err := os.CreateTemp("", "arbe-folder-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tmp.Close()) }()
	if err := os.Remove(tmp.Name()); err != nil { // open, it lives on
		return err
	}
	if err := dir.pack(tmp); err != nil {
		return err
	}
	size, err := tmp.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := box.Upload(ctx, sandbox.File{Path: folderArchive, InHome: true, Content: tmp, Size: size, Mode: 0o600}); err != nil {
		return err
	}
	_, err = g.sh(ctx, box, sandbox.Command{}, `tar -xzf "$HOME/`+folderArchive+`" && rm "$HOME/`+folderArchive+`"`)
	return err
}

// pack writes the folder as a compressed archive: folders, files and links, with their modes, and nobody's name.
func (d Folder) pack(w io.Writer) error {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	root, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil || rel == "." {
			return err
		}
		if out, err := d.excluded(filepath.ToSlash(rel)); err != nil || out {
			if out && entry.IsDir() {
				return filepath.SkipDir
			}
			return err
		}
		return add(archive, file, filepath.ToSlash(rel), entry)
	})
	return errors.Join(err, archive.Close(), zip.Close())
}

func (d Folder) excluded(rel string) (bool, error) {
	for _, pattern := range d.Exclude {
		for _, name := range []string{rel, path.Base(rel)} {
			if is, err := path.Match(pattern, name); err != nil || is {
				if err != nil {
					err = fmt.Errorf("exclude %q: %w", pattern, err)
				}
				return is, err
			}
		}
	}
	return false, nil
}

// add adds one file to the archive. What is neither a file, a folder nor a link (a socket, a device) is left out.
func add(archive *tar.Writer, file, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = os.Readlink(file); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, 0, 0, "", ""
	if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	_, err = io.CopyN(archive, f, info.Size())
	return errors.Join(err, f.Close())
}
