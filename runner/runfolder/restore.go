package runfolder

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"arbe.0sk.ar/runner/internal/durable"
)

// Restore writes the folder's files again that were removed during the run: the facts and the lock from their open
// files, those that WriteFile has written from the copy in memory.
func (f *Folder) Restore() error {
	if f.facts == nil {
		return nil // there is no folder
	}
	if err := os.MkdirAll(f.Path, 0o700); err != nil {
		return err
	}
	errs := []error{f.openDir()}
	if path := filepath.Join(f.Path, factsFile); missing(path) {
		facts, err := restored(path, f.facts)
		if err == nil {
			err = f.facts.Close()
			f.facts = facts
		}
		errs = append(errs, err)
	}
	files := map[string][]byte{}
	errs = append(errs, f.eachKept(keptFile, func(l keptLine) { files[l.File] = l.Content }))
	for name, content := range files {
		if path := filepath.Join(f.Path, name); missing(path) {
			errs = append(errs, durable.WriteFile(path, content))
		}
	}
	if path := filepath.Join(filepath.Dir(f.Path), "lock"); missing(path) {
		lock, err := restored(path, f.lock)
		if err == nil {
			err = takeLock(lock)
		}
		if err == nil {
			err = f.lock.Close()
			f.lock = lock
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// restored makes the file path with the content of the open file from, and opens it for appending.
func restored(path string, from *os.File) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	st, err := from.Stat()
	if err == nil {
		_, err = io.Copy(f, io.NewSectionReader(from, 0, st.Size()))
	}
	if err = errors.Join(err, f.Sync()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
