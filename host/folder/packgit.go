package folder

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/pause"
)

// git writes the content of a .git. Its records (HEAD, refs, index and all else but objects) are as of one moment,
// which is between two reads of the objects: each object that the records name was there then, and git moves objects by
// writing the new file first.
func (p *packer) git(ctx context.Context, dir string) (err error) {
	folders, _, err := p.scan(dir)
	if err == nil {
		err = p.objects(ctx, folders)
	}
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "arbe-records-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if folders, err = p.snapshot(ctx, dir, tmp); err != nil {
		return err
	}
	records, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	here := p.root
	p.root = records
	err = p.dir(ctx, dir)
	p.root = here
	for range rereads {
		if p.vanished = false; err == nil {
			err = p.objects(ctx, folders)
		}
		if !p.vanished {
			break
		}
	}
	return err
}

// objects writes the files of folders of objects that are not written yet. Such a file never changes.
func (p *packer) objects(ctx context.Context, folders []string) error {
	p.more = true
	defer func() { p.more = false }()
	for _, dir := range folders {
		if err := p.add(ctx, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// record is a file or folder below a .git.
type record struct {
	name string
	info fs.FileInfo
}

// scan returns the folders of objects below a .git, and all other paths there, but for locks.
func (p *packer) scan(dir string) (objects []string, records []record, err error) {
	names, err := readNames(p.root, dir)
	if err != nil {
		return nil, nil, ignoreAbsent(err)
	}
	isGit := path.Base(dir) == ".git" || slices.Contains(names, "HEAD") && slices.Contains(names, "objects")
	for _, base := range names {
		name := path.Join(dir, base)
		info, err := p.root.Lstat(name)
		if err != nil {
			if err = ignoreAbsent(err); err == nil {
				continue
			}
			return nil, nil, err
		}
		switch {
		case p.match.excludes(name, info.IsDir()):
			continue
		case isGit && info.IsDir() && (base == "objects" || base == "lfs" || base == "annex"):
			objects = append(objects, name)
			continue
		case strings.HasSuffix(base, ".lock") && !info.IsDir(): // of a git that works now
			p.locked = true
			continue
		}
		records = append(records, record{name, info})
		if info.IsDir() {
			o, r, err := p.scan(name)
			if err != nil {
				return nil, nil, err
			}
			objects, records = append(objects, o...), append(records, r...)
		}
	}
	return objects, records, nil
}

// ignoreAbsent returns nil for the error of a path that does not exist.
func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// snapshotPause is the first wait until records that change are copied again; each further one is twice as long.
const snapshotPause = 20 * time.Millisecond

// snapshot copies the records of a .git to the folder tmp, and returns the folders of objects. It copies again while
// they change, or another git works, rereads times at most.
func (p *packer) snapshot(ctx context.Context, dir, tmp string) (objects []string, err error) {
	for i, wait := 1, snapshotPause; ; i, wait = i+1, 2*wait {
		p.locked = false
		objects, before, err := p.scan(dir)
		if err != nil {
			return nil, err
		}
		whole, err := p.copyRecords(tmp, before)
		if err != nil {
			return nil, err
		}
		_, after, err := p.scan(dir)
		if err != nil {
			return nil, err
		}
		steady := slices.EqualFunc(before, after, func(a, b record) bool {
			return a.name == b.name && (same(a.info, b.info) || a.info.IsDir() && b.info.IsDir())
		})
		if whole && steady && !p.locked || i == rereads {
			return objects, nil
		}
		if !pause.For(ctx, wait) {
			return nil, context.Cause(ctx)
		}
		if err := os.RemoveAll(filepath.Join(tmp, filepath.FromSlash(dir))); err != nil {
			return nil, err
		}
	}
}

// copyRecords copies records to the folder tmp; false if one has changed meanwhile.
func (p *packer) copyRecords(tmp string, all []record) (whole bool, err error) {
	whole = true
	for _, r := range all {
		to := filepath.Join(tmp, filepath.FromSlash(r.name))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return false, err
		}
		switch typeOf(r.info.Mode()) {
		case Dir:
			err = os.MkdirAll(to, 0o700)
		case Link:
			var target string
			if target, err = p.root.Readlink(r.name); err == nil {
				err = os.Symlink(target, to)
			}
		case File:
			err = p.copyRecord(r, to)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errReplaced) {
			whole, err = false, nil
		}
		if err != nil {
			return false, err
		}
	}
	for _, r := range slices.Backward(all) { // a folder's mode once its content is there
		if r.info.IsDir() {
			if err := os.Chmod(filepath.Join(tmp, filepath.FromSlash(r.name)), r.info.Mode().Perm()|0o700); err != nil {
				return false, err
			}
		}
	}
	return whole, nil
}

// copyRecord copies one file, with its mode and its time.
func (p *packer) copyRecord(r record, to string) error {
	if p.reading != nil {
		p.reading(r.name)
	}
	f, info, err := openFile(p.root, r.name)
	if err != nil {
		return err
	}
	defer f.Close() // read only: nothing to lose
	g, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(g, f)
	if err = errors.Join(err, g.Chmod(info.Mode().Perm()), g.Close()); err != nil {
		return err
	}
	return os.Chtimes(to, time.Time{}, info.ModTime())
}
