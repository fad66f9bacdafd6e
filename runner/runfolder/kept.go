package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/durable"
)

// What keeps a run alive beside its folder. A keeper holds both files open and hands them to its workers: a run whose
// folder can't be read or written any more still gets its end.
//
// The first file is the folder itself, by which its files are reached when its path no longer leads to them. The second
// is in memory and has no name: a copy of each fact, and of each file that WriteFile writes. Where a Folder has it,
// Facts and ReadFile read it, and the files on disk are for Recover.

// keptLine is a line of the copy in memory. It begins with a newline, which ends half a line of a killed worker.
type keptLine struct {
	Fact    *Fact  `json:"fact,omitempty"`
	File    string `json:"file,omitempty"`
	Content []byte `json:"content,omitempty"`
}

// Hold opens what Files returns. Facts that are in the folder already are of a start that the server has refused.
func (f *Folder) Hold() error {
	if err := f.openKept(); err != nil {
		return err
	}
	facts, err := ReadFacts(f.Path)
	for _, fact := range facts {
		err = errors.Join(err, f.keep(keptLine{Fact: &fact}))
	}
	if record, missing := os.ReadFile(filepath.Join(f.Path, recordFile)); missing == nil {
		err = errors.Join(err, f.keep(keptLine{File: recordFile, Content: record}))
	}
	return errors.Join(err, f.openDir())
}

// openKept makes the copy in memory, without content.
func (f *Folder) openKept() error {
	fd, err := unix.MemfdCreate("run", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd: %w", err)
	}
	f.kept = os.NewFile(uintptr(fd), "run")
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND)
	return err
}

// openDir opens the folder itself.
func (f *Folder) openDir() error {
	dir, err := os.OpenFile(f.Path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	if f.dir != nil {
		err = f.dir.Close()
	}
	f.dir = dir
	return err
}

// Nowhere is the state folder of a run for which none can be written.
const Nowhere = "/proc/self/nowhere"

// InMemory returns the folder of a run in the state folder Nowhere: nothing of it outlives the processes that hold it.
func InMemory(thread, run string) (*Folder, error) {
	f := &Folder{Path: Path(Nowhere, thread, run)}
	if err := f.openKept(); err != nil {
		return nil, err
	}
	return f, nil
}

// Files are the open files of the folder, for a child process to Inherit: the lock, the folder itself, and the copy in
// memory. A file of the three that the folder lacks is the last.
func (f *Folder) Files() []*os.File {
	f.alone = false
	files := []*os.File{f.lock, f.dir, f.kept}
	for i, file := range files {
		if file == nil {
			files[i] = f.kept
		}
	}
	return files
}

// Inherit opens the folder of a run with the Files of the process that holds it. The Folder closes them.
func Inherit(path string, lock, dir, kept *os.File) *Folder {
	f := &Folder{Path: path, lock: lock, dir: dir, kept: kept}
	if _, err := os.Stat(filepath.Join(path, factsFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		by := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
		if _, err := os.Stat(filepath.Join(by, factsFile)); err == nil {
			f.Path = by
		}
	}
	f.facts, _ = openFacts(f.Path) // without it the facts are in memory alone, and Note reports that
	return f
}

// keep appends a line to the copy in memory, if there is one.
func (f *Folder) keep(l keptLine) error {
	if f.kept == nil {
		return nil
	}
	b, err := json.Marshal(l)
	if err == nil {
		_, err = f.kept.Write(append(append([]byte{'\n'}, b...), '\n'))
	}
	return err
}

// The beginnings of the two kinds of lines.
const (
	keptFact = `{"fact"`
	keptFile = `{"file"`
)

// eachKept calls each for the lines of a kind in the copy in memory.
func (f *Folder) eachKept(kind string, each func(keptLine)) error {
	st, err := f.kept.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, st.Size())
	if _, err := f.kept.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for line := range bytes.SplitSeq(b, []byte{'\n'}) {
		var l keptLine
		if bytes.HasPrefix(line, []byte(kind)) && json.Unmarshal(line, &l) == nil {
			each(l)
		}
	}
	return nil
}

// Facts returns the facts of the run.
func (f *Folder) Facts() (facts []Fact, err error) {
	if f.kept == nil {
		return ReadFacts(f.Path)
	}
	err = f.eachKept(keptFact, func(l keptLine) { facts = append(facts, *l.Fact) })
	return facts, err
}

// ReadFile returns the content of a file that WriteFile has written; fs.ErrNotExist if there is none.
func (f *Folder) ReadFile(name string) (b []byte, err error) {
	if f.kept == nil {
		return os.ReadFile(filepath.Join(f.Path, name))
	}
	err = f.eachKept(keptFile, func(l keptLine) {
		if l.File == name {
			b = l.Content
		}
	})
	if err == nil && b == nil {
		err = &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	}
	return b, err
}

// Place is the folder's path for people.
func (f *Folder) Place() string {
	if path, err := os.Readlink(f.Path); err == nil && strings.HasPrefix(f.Path, "/proc/") {
		return path
	}
	return f.Path
}

// Record returns the run's record; fs.ErrNotExist if there is none.
func (f *Folder) Record() (Record, error) {
	b, err := f.ReadFile(recordFile)
	if err != nil {
		return Record{}, err
	}
	return parseRecord(b)
}

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
