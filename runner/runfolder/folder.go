// Package runfolder keeps what this machine has recorded of a run: its configuration, the facts in their order, how
// far its lines are on the thread, and its end. A worker that dies is followed by one that continues from the folder.
//
// A fact is synced when Note returns. One process writes a folder at a time, and holds the lock of its thread; any may
// read it. The package decides nothing: Replay adds up the facts, and package runner draws the conclusions.
package runfolder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// Folder is a run's folder, <state>/runs/<thread>/<run>: what this machine has recorded of the run. Each of its files
// is complete or absent. A file that a promise rests on is on disk before the promise is made.
//
//	run.json       the run's configuration; written once
//	facts.jsonl    what happened, in order
//	cursor.json    how far the session is on the thread; a stale one costs a repeat and nothing else
//	*.notes        the state of the mirrors, for the next worker; without it they read the session from its start
//	terminal.json  the run's last entries, as they are posted
//	stdout, stderr the end of what the agent printed: at most 16 MiB
//
// Beside the folders of a thread's runs is a lock. Every process of a live runner holds it, so it is free when the last
// one is gone.
type Folder struct {
	Path  string
	facts *os.File // nil: it can't be written
	lock  *os.File // nil: another process has it
	dir   *os.File // the folder itself; nil: not held
	kept  *os.File // the copy in memory; nil: not held
	alone bool     // no process that is to keep the lock has inherited it
}

const (
	recordFile = "run.json"
	factsFile  = "facts.jsonl"
)

// BusyError: another runner on this machine has the thread.
type BusyError struct{ Thread, Holder string }

func (e *BusyError) Error() string {
	text := fmt.Sprintf("thread %s has a live run on this machine already", e.Thread)
	if e.Holder != "" { // which the holder writes after it has the lock
		text += " (" + e.Holder + ")"
	}
	return text
}

// runsDir is the parent of the folders of a thread's runs.
func runsDir(state, thread string) string { return filepath.Join(state, "runs", thread) }

// Path is the path of a run's folder.
func Path(state, thread, run string) string { return filepath.Join(runsDir(state, thread), run) }

// New makes or opens the folder of a run, and takes the thread's lock. Its error is a *BusyError if another
// runner has the lock.
func New(state, thread, run string) (*Folder, error) {
	dir := Path(state, thread, run)
	if err := durable.MkdirAll(dir); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(runsDir(state, thread), "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := takeLock(lock); err != nil {
		holder, _ := os.ReadFile(lock.Name()) // only for the message
		err = &BusyError{Thread: thread, Holder: string(bytes.TrimSpace(holder))}
		return nil, errors.Join(err, lock.Close())
	}
	err = lock.Truncate(0)
	if err == nil {
		_, err = lock.WriteAt(fmt.Appendf(nil, "run %s, pid %d\n", run, os.Getpid()), 0)
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	f, err := Open(dir, lock)
	if err == nil {
		f.alone = true
		if !f.Used() {
			err = f.reserve()
		}
	}
	if err != nil && f != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, err
}

// Disk space that a run reserves at its start, for its facts and its terminal.
const (
	factsRoom = 16 << 10
	spareRoom = 32 << 10
	spareFile = ".spare" // removed when the terminal needs its space
)

// reserve allocates the space for what the run must record: facts keep the runner from doing things twice.
func (f *Folder) reserve() error {
	spare, err := os.OpenFile(filepath.Join(f.Path, spareFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for file, room := range map[*os.File]int64{f.facts: factsRoom, spare: spareRoom} {
		// Another error means that the file system can't allocate ahead, or that the size of files is limited.
		failed := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, room)
		if errors.Is(failed, unix.ENOSPC) || errors.Is(failed, unix.EDQUOT) {
			err = errors.Join(err, fmt.Errorf("%s: %w", file.Name(), failed))
		}
	}
	return errors.Join(err, spare.Close())
}

// Open opens the folder of a run whose lock another process holds. The Folder closes lock; it may be nil.
func Open(path string, lock *os.File) (*Folder, error) {
	facts, err := openFacts(path)
	if err != nil && lock != nil {
		err = errors.Join(err, lock.Close())
	}
	if err != nil {
		return nil, err
	}
	return &Folder{Path: path, facts: facts, lock: lock}, nil
}

// openFacts opens the file of a run's facts.
func openFacts(path string) (*os.File, error) {
	facts, err := os.OpenFile(filepath.Join(path, factsFile), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := EndLine(facts); err != nil { // a crash may have left half a line
		return nil, errors.Join(err, facts.Close())
	}
	return facts, nil
}

// Close closes the folder's files. It releases the lock unless another process holds it, too.
func (f *Folder) Close() (err error) {
	if f.lock != nil && f.alone {
		// A child that this process is starting has a copy of each open file until the end of its exec, so that closing
		// the lock's file does not release the lock at once.
		err = releaseLock(f.lock)
	}
	for _, file := range []*os.File{f.facts, f.lock, f.dir, f.kept} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}

// Used reports whether a runner has begun the run here. A run that the thread's server refused counts as not begun.
func (f *Folder) Used() bool {
	if _, err := os.Stat(filepath.Join(f.Path, recordFile)); err != nil {
		return false
	}
	facts, err := ReadFacts(f.Path)
	return err != nil || !Replay(facts).TurnedAway
}

// Note appends a fact to facts.jsonl and syncs it. The fact has a line of its own, also after a line that a full disk
// cut off. A fact that the disk refuses is in the copy in memory.
func (f *Folder) Note(fact Fact) error {
	fact.At, fact.Clock = time.Now().UTC(), Clock()
	b, err := json.Marshal(fact)
	if err != nil {
		return err
	}
	if err := errors.Join(f.keep(keptLine{Fact: &fact}), f.writeFact(b)); err != nil {
		return fmt.Errorf("note %s: %w", fact.Fact, err)
	}
	return nil
}

func (f *Folder) writeFact(b []byte) error {
	if f.facts == nil {
		return fmt.Errorf("%s can't be written", filepath.Join(f.Path, factsFile))
	}
	if err := EndLine(f.facts); err != nil {
		return err
	}
	if _, err := f.facts.Write(append(b, '\n')); err != nil {
		return err
	}
	return f.facts.Sync()
}

// WriteFile writes the file name of the folder: as a whole or not at all, and on disk when it returns. On a full disk
// it uses the reserved space. A file that the disk refuses is in the copy in memory.
func (f *Folder) WriteFile(name string, b []byte) error {
	kept := f.keep(keptLine{File: name, Content: b})
	err := durable.WriteFile(filepath.Join(f.Path, name), b)
	if NoRoom(err) && os.Remove(filepath.Join(f.Path, spareFile)) == nil {
		err = durable.WriteFile(filepath.Join(f.Path, name), b)
	}
	return errors.Join(kept, err)
}

// NoRoom reports whether an error means a full disk or a file at its size limit.
func NoRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// SaveCursor saves the position up to which the session is on the thread. It does not sync: an older cursor costs a
// repeat only.
func (f *Folder) SaveCursor(p session.Position) error {
	b, _ := json.Marshal(p) // two numbers always marshal
	return Replace(filepath.Join(f.Path, "cursor.json"), b)
}

// Cursor returns the saved position up to which the session is on the thread; the start if none is saved.
func Cursor(folder string) (p session.Position) {
	b, err := os.ReadFile(filepath.Join(folder, "cursor.json"))
	if err != nil || json.Unmarshal(b, &p) != nil {
		return session.Position{}
	}
	return p
}

// takeLock locks a file until it is closed here and in all processes that have inherited it. (The lock belongs to the
// open file, not to the process.)
func takeLock(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// releaseLock releases a lock for all that have inherited it.
func releaseLock(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
}

// locked reports whether a process has the lock. It never takes the lock itself.
func locked(f *os.File) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}

// Replace writes the file at path, as a whole or not at all. It does not sync: the file may be lost when the machine
// crashes.
func Replace(path string, b []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// EndLine ends the last line of a file if it has no newline.
func EndLine(f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, st.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.Write([]byte("\n")) // opened to append
	return err
}

// Known is one run as its folder on this machine has it. Its Session is the last one that its agent has worked in, and
// From is of that.
type Known struct {
	Record
	Path     string           `json:"folder"`
	State    string           `json:"state"` // opening, running, ending, delivered, taken, refused or lost
	AgentPID int              `json:"agentPid,omitempty"`
	OnThread int              `json:"linesOnThread"`
	Verdict  *outcome.Verdict `json:"verdict,omitempty"`
	LastFact time.Time        `json:"lastFact"`

	Began     string           `json:"-"` // path of the session that it began with
	BeganFrom session.Position `json:"-"` // of its first line there
}

// The last states of a Known run.
const (
	StateDelivered = "delivered" // its terminal is on the thread
	StateTaken     = "taken"     // another runner has it
	StateRefused   = "refused"   // the thread's server refused it: it has not begun
	StateLost      = "lost"      // its runner is gone and left it unfinished: Recover finishes it
)

// Left reports whether the run's runner is gone and left the folder to Recover.
func (k Known) Left() bool { return k.State == StateLost || k.State == StateRefused }

// List returns the runs in the state folder, the newest first. It returns all that it can read; its error joins those
// of the others.
func List(state string) ([]Known, error) {
	threads, err := folders(filepath.Join(state, "runs"))
	errs := []error{err}
	var all []Known
	for _, thread := range threads {
		runs, err := ListThread(state, filepath.Base(thread))
		all, errs = append(all, runs...), append(errs, err)
	}
	newestFirst(all)
	return all, errors.Join(errs...)
}

// ListThread is List for one thread.
func ListThread(state, thread string) ([]Known, error) {
	dirs, err := folders(runsDir(state, thread))
	errs := []error{err}
	var all []Known
	for _, dir := range dirs {
		k, err := know(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // no run was begun there
		case err != nil:
			errs = append(errs, fmt.Errorf("read run folder %s: %w", dir, err))
		default:
			all = append(all, k)
		}
	}
	newestFirst(all)
	return all, errors.Join(errs...)
}

func newestFirst(runs []Known) {
	sort.SliceStable(runs, func(i, j int) bool { return runs[i].Started.After(runs[j].Started) })
}

// folders returns the paths of the folders in dir; none if dir does not exist.
func folders(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return paths, err
}

// know reads a run's folder.
func know(dir string) (Known, error) {
	k := Known{Path: dir, State: "opening"}
	var err error
	if k.Record, err = ReadRecord(dir); err != nil {
		return k, err
	}
	k.Opening, k.Subagents = nil, nil // for a worker only
	facts, err := ReadFacts(dir)
	if err != nil {
		return k, err
	}
	p := Replay(facts)
	if k.LastFact = p.last; p.last.IsZero() {
		k.LastFact = k.Started
	}
	if p.Spawned != nil {
		k.State, k.AgentPID = "running", p.Spawned.PID
	}
	if p.Exit != nil || p.NotStarted != nil || p.Decided != nil {
		k.State = "ending"
	}
	k.Began, k.BeganFrom = k.Session, k.From
	if n := len(p.Sessions); n > 0 {
		last := p.Sessions[n-1]
		if k.SessionID != "" && k.SessionID != last.ID {
			k.From = session.Position{}
		}
		if k.Session, k.SessionID = last.Path, last.ID; k.Began == "" {
			k.Began = p.Sessions[0].Path
		}
	}
	if p.Decided != nil {
		k.Verdict = p.Decided.Verdict
	}
	switch {
	case p.Delivered:
		k.State = StateDelivered
	case p.Taken:
		k.State = StateTaken
	case !k.held() && p.TurnedAway:
		k.State = StateRefused
	case !k.held():
		k.State = StateLost
	}
	k.OnThread = max(0, Cursor(dir).Index-k.From.Index)
	return k, nil
}

// held reports whether a process of the run's runner is there: it holds the thread's lock, whose file names the run.
func (k Known) held() bool {
	lock, err := os.Open(filepath.Join(filepath.Dir(k.Path), "lock"))
	if err != nil {
		return false
	}
	defer lock.Close() // read only: nothing to lose
	if !locked(lock) {
		return false
	}
	holder, err := os.ReadFile(lock.Name())
	return err == nil && bytes.HasPrefix(holder, []byte("run "+k.Run+","))
}
