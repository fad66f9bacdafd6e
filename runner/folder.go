package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/session"
)

// Folder is a run's folder, <state>/runs/<thread>/<run>: what is known of the run on this machine, written down as it happens. Its files are
// complete or absent, and those that a promise rests on are on disk before the promise is made.
//
//	run.json       what was asked for; written once
//	facts.jsonl    what happened, in order
//	cursor.json    how far the session is on the thread; a stale one costs a repeat and nothing else
//	*.notes        what the next worker's mirrors need to go on from there; without it they read the session from its start
//	terminal.json  the run's last entries, as they are posted
//	stdout, stderr the end of what the agent printed: at most 16 MiB
//
// Beside the folders of a thread's runs lies a lock. Every process of a live runner holds it, so it is free when the last one is gone.
type Folder struct {
	Path  string
	facts *os.File
	lock  *os.File
}

// BusyError says that another runner on this machine is working on the thread.
type BusyError struct{ Thread, Holder string }

func (e *BusyError) Error() string {
	return fmt.Sprintf("thread %s has a live run on this machine already (%s)", e.Thread, e.Holder)
}

// runsDir is where the folders of a thread's runs are.
func runsDir(state, thread string) string { return filepath.Join(state, "runs", thread) }

// FolderPath is where a run's folder is.
func FolderPath(state, thread, run string) string { return filepath.Join(runsDir(state, thread), run) }

// NewFolder makes the folder of a run, or takes the one that is there, with the thread's lock. A *BusyError says that somebody else has it.
func NewFolder(state, thread, run string) (*Folder, error) {
	dir := FolderPath(state, thread, run)
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
	f, err := OpenFolder(dir, lock)
	if err == nil && !f.Used() {
		err = f.reserve()
	}
	if err != nil && f != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, err
}

// Room that a run takes before a disk is full: what its facts need, and its terminal.
const (
	factsRoom = 16 << 10
	spareRoom = 32 << 10
	spareFile = ".spare" // is given up for the terminal
)

// reserve takes the room that the run will need: what is to be done once, and not twice, hangs on what is written down.
func (f *Folder) reserve() error {
	spare, err := os.OpenFile(filepath.Join(f.Path, spareFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	for file, room := range map[*os.File]int64{f.facts: factsRoom, spare: spareRoom} {
		// An error that is not about the disk says that such a file system has no answer, or that files must be small here.
		failed := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, room)
		if errors.Is(failed, unix.ENOSPC) || errors.Is(failed, unix.EDQUOT) {
			err = errors.Join(err, fmt.Errorf("%s: %w", file.Name(), failed))
		}
	}
	return errors.Join(err, spare.Close())
}

// OpenFolder takes the folder of a run whose lock is held: lock is handed over, and nil where somebody else keeps it.
func OpenFolder(path string, lock *os.File) (*Folder, error) {
	facts, err := os.OpenFile(filepath.Join(path, "facts.jsonl"), os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		err = endLine(facts) // a crash may have left half a line
	}
	if err != nil && lock != nil {
		err = errors.Join(err, lock.Close())
	}
	if err != nil {
		return nil, err
	}
	return &Folder{Path: path, facts: facts, lock: lock}, nil
}

// Lock is the lock's file, for a process that is to hold it, too.
func (f *Folder) Lock() *os.File { return f.lock }

// Close gives the lock back, where this process is the last to hold it.
func (f *Folder) Close() error {
	err := f.facts.Close()
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
	}
	return err
}

// Used reports whether a runner has begun the run here before. One that the thread's server turned away has not.
func (f *Folder) Used() bool {
	if _, err := os.Stat(filepath.Join(f.Path, "run.json")); err != nil {
		return false
	}
	facts, err := readFacts(f.Path)
	return err != nil || !replay(facts).turnedAway
}

// Note writes a fact down, to disk. It begins a line of its own, also where the last one was cut off by a disk that
// was full.
func (f *Folder) Note(fact Fact) error {
	fact.At, fact.Clock = time.Now().UTC(), clock()
	b, err := json.Marshal(fact)
	if err != nil {
		return err
	}
	if err := endLine(f.facts); err != nil {
		return fmt.Errorf("note %s: %w", fact.Fact, err)
	}
	if _, err := f.facts.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("note %s: %w", fact.Fact, err)
	}
	return f.facts.Sync()
}

// WriteFile makes the file name of the folder hold b: as a whole or not at all, and on disk when it returns. On a full disk it takes the room that
// was kept for that.
func (f *Folder) WriteFile(name string, b []byte) error {
	err := writeFile(filepath.Join(f.Path, name), b, true)
	if noRoom(err) && os.Remove(filepath.Join(f.Path, spareFile)) == nil {
		err = writeFile(filepath.Join(f.Path, name), b, true)
	}
	return err
}

// SaveCursor writes down how far the session is on the thread. It is not synced: an older one serves as well.
func (f *Folder) SaveCursor(p session.Position) error {
	b, _ := json.Marshal(p) // two numbers always marshal
	return writeFile(filepath.Join(f.Path, "cursor.json"), b, false)
}

// cursor is how far the session is on the thread; the start where nothing is saved.
func cursor(folder string) (p session.Position) {
	b, err := os.ReadFile(filepath.Join(folder, "cursor.json"))
	if err != nil || json.Unmarshal(b, &p) != nil {
		return session.Position{}
	}
	return p
}

// takeLock locks a file for as long as it is open, here or in a process that has inherited it. (A lock of the open file, not of the process.)
func takeLock(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// locked reports whether somebody has the lock, without taking it even for a moment.
func locked(f *os.File) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}

// writeFile makes the file at path hold b, as a whole or not at all. What is not to be on disk may be lost when the
// machine dies.
func writeFile(path string, b []byte, onDisk bool) (err error) {
	if onDisk {
		return durable.WriteFile(path, b)
	}
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

// endLine gives the last line of a file its newline, where it has none.
func endLine(f *os.File) error {
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

// Known is what a machine knows of one run, from its folder.
type Known struct {
	Record
	Path     string           `json:"folder"`
	State    string           `json:"state"` // opening, running, ending, delivered or taken; lost where its runner is gone and left it unfinished
	AgentPID int              `json:"agentPid,omitempty"`
	OnThread int              `json:"linesOnThread"`
	Verdict  *outcome.Verdict `json:"verdict,omitempty"`
	LastFact time.Time        `json:"lastFact"`
}

// The states of a Known run that need nothing more.
const (
	StateDelivered = "delivered"
	StateTaken     = "taken"
	StateLost      = "lost" // needs Recover
)

// List returns the runs that the state folder knows, the newest first. A folder that can't be read is in the error,
// and the others are returned.
func List(state string) ([]Known, error) {
	threads, err := folders(filepath.Join(state, "runs"))
	errs := []error{err}
	var all []Known
	for _, thread := range threads {
		runs, err := listThread(state, filepath.Base(thread))
		all, errs = append(all, runs...), append(errs, err)
	}
	newestFirst(all)
	return all, errors.Join(errs...)
}

// listThread is List for one thread.
func listThread(state, thread string) ([]Known, error) {
	dirs, err := folders(runsDir(state, thread))
	errs := []error{err}
	var all []Known
	for _, dir := range dirs {
		k, err := know(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist): // nothing was begun there
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

// folders are the paths of the folders in dir; none where there is no dir.
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
	if k.Record, err = readRecord(dir); err != nil {
		return k, err
	}
	k.Opening = nil // for the runner itself
	facts, err := readFacts(dir)
	if err != nil {
		return k, err
	}
	p := replay(facts)
	if k.LastFact = p.last; p.last.IsZero() {
		k.LastFact = k.Started
	}
	if p.spawned != nil {
		k.State, k.AgentPID = "running", p.spawned.PID
	}
	if p.exit != nil || p.notStarted != nil || p.decided != nil {
		k.State = "ending"
	}
	if p.located != nil {
		k.Session, k.SessionID = p.located.Path, p.located.ID
	}
	if p.decided != nil {
		k.Verdict = p.decided.Verdict
	}
	switch {
	case p.delivered:
		k.State = StateDelivered
	case p.taken:
		k.State = StateTaken
	case !k.held():
		k.State = StateLost
	}
	k.OnThread = max(0, cursor(dir).Index-k.From.Index)
	return k, nil
}

// held reports whether a process of the run's runner is there: it holds the thread's lock, and the lock says which run it is for.
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
