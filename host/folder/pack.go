package folder

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"
)

// Limits of reading a file that changes.
const (
	rereads = 4       // reads of one file
	inMind  = 1 << 20 // bytes of a file in memory; the rest goes to a temporary file
)

// errMoving is returned if a file changed while it was read.
var errMoving = errors.New("the file changes while it is read")

// packer writes a folder as an archive.
type packer struct {
	root  *os.Root
	match matcher
	tar   *tar.Writer
	head  bytes.Buffer // the beginning of the file
	spool *os.File     // the rest of a large file; nil before the first
	made  Manifest

	more     bool              // only what is not written yet
	vanished bool              // a path was gone before it was read
	locked   bool              // another git works below the .git that was scanned
	reading  func(name string) // called before each path is read, only in tests; nil for none
}

// pack writes the folder as a compressed archive, with modes and without owners, and returns its manifest.
func (f Folder) pack(ctx context.Context, w io.Writer) (m Manifest, err error) {
	p := packer{made: Manifest{}, reading: f.reading}
	if p.match, err = newMatcher(f.Exclude); err != nil {
		return nil, err
	}
	if p.root, err = os.OpenRoot(f.Path); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.root.Close()) }()
	defer func() {
		if p.spool != nil {
			err = errors.Join(err, p.spool.Close())
		}
	}()
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	p.tar = tar.NewWriter(zip)
	if err := p.dir(ctx, "."); err != nil {
		return nil, err
	}
	return p.made, errors.Join(p.tar.Close(), zip.Close())
}

// dir writes the content of a folder. It skips files that are deleted meanwhile.
func (p *packer) dir(ctx context.Context, dir string) error {
	names, err := readNames(p.root, dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		name = path.Join(dir, name)
		err := p.add(ctx, name)
		for i := 1; errors.Is(err, errReplaced) && i < rereads; i++ {
			err = p.add(ctx, name)
		}
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: exclude it, or let it be read", err)
		}
		if errors.Is(err, fs.ErrNotExist) {
			p.vanished, err = true, nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readNames returns the sorted names in a folder.
func readNames(root *os.Root, dir string) ([]string, error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, f.Close())
}

// add writes name and everything below it.
func (p *packer) add(ctx context.Context, name string) error {
	if p.reading != nil {
		p.reading(name)
	}
	info, err := p.root.Lstat(name)
	if err != nil {
		return err
	}
	if p.match.excludes(name, info.IsDir()) || p.more && p.made[name].Type == File {
		return nil
	}
	e := Entry{Type: typeOf(info.Mode()), Mode: info.Mode().Perm()}
	h := tar.Header{
		Name: name, Mode: int64(e.Mode), ModTime: info.ModTime().Truncate(time.Second),
		Format: tar.FormatGNU,
	}
	switch e.Type {
	case Special:
		return nil
	case Link:
		e.Mode = 0
		if e.Link, err = p.root.Readlink(name); err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
	case Dir:
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	case File:
		return p.file(name, h)
	}
	if err := p.tar.WriteHeader(&h); err != nil {
		return err
	}
	p.made[name] = e
	switch {
	case e.Type != Dir:
		return nil
	case path.Base(name) == ".git":
		return p.git(ctx, name)
	}
	return p.dir(ctx, name)
}

// file writes a file. The archive needs its length before its content, so the content is copied first.
func (p *packer) file(name string, h tar.Header) error {
	for i := 1; ; i++ {
		content, e, err := p.read(name)
		if errors.Is(err, errMoving) && i < rereads {
			continue
		}
		if err != nil && !errors.Is(err, errMoving) {
			return err
		}
		h.Typeflag, h.Size, h.Mode = tar.TypeReg, e.Size, int64(e.Mode)
		if err := p.tar.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := io.Copy(p.tar, content); err != nil {
			return err
		}
		p.made[name] = e
		return nil
	}
}

// read copies a file, and returns the copy with its entry. With errMoving the file has changed meanwhile: the entry is
// that of the copy, and the caller may try again.
func (p *packer) read(name string) (io.Reader, Entry, error) {
	var fail Entry
	f, before, err := openFile(p.root, name)
	if err != nil {
		return nil, fail, err
	}
	defer f.Close() // read only: nothing to lose
	sum := sha256.New()
	from := io.TeeReader(f, sum)
	p.head.Reset()
	size, err := io.CopyN(&p.head, from, inMind+1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fail, err
	}
	var content io.Reader = &p.head
	if size > inMind {
		rest, err := p.spooled(from)
		if err != nil {
			return nil, fail, err
		}
		content, size = io.MultiReader(&p.head, rest), size+rest.Size()
	}
	e := Entry{Type: File, Mode: before.Mode().Perm(), Size: size, SHA256: Sum(sum.Sum(nil))}
	after, err := f.Stat()
	if err == nil && !same(before, after) {
		err = errMoving
	}
	return content, e, err
}

// spooled copies r to the temporary file, and returns the copy.
func (p *packer) spooled(r io.Reader) (*io.SectionReader, error) {
	if p.spool == nil {
		f, err := os.CreateTemp("", "arbe-file-")
		if err != nil {
			return nil, err
		}
		p.spool = f
		if err := os.Remove(f.Name()); err != nil {
			return nil, err
		}
	}
	if _, err := p.spool.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	n, err := io.Copy(p.spool, r)
	return io.NewSectionReader(p.spool, 0, n), err
}
