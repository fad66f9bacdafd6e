package fakedaytona

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// The states of a box that the double brings about on its own; a test may set others.
const (
	building   = "building_snapshot"
	unbuilt    = "build_failed"
	creating   = "creating"
	starting   = "starting"
	started    = "started"
	stopping   = "stopping"
	stopped    = "stopped"
	destroying = "destroying"
	destroyed  = "destroyed"
	failed     = "error"
	archived   = "archived"
	paused     = "paused"
)

// Box is a box as tests see it.
type Box struct {
	ID, Name, State, ErrorReason, Snapshot, Image, Target string

	Volumes []Mount

	Labels, Env          map[string]string
	CPU, Memory, Disk    int // cores, GiB, GiB
	AutoStop, AutoDelete int // minutes
	Activity             int // requests that kept it awake
	Created              time.Time
	Home                 string // its user's home folder, a path of this machine
}

// box is one box. What may change is guarded by Server.mu.
type box struct {
	Box
	seq   int
	dir   string
	ready time.Time // when what it is doing will be done
	gone  time.Time // when it was destroyed
	last  time.Time // activity
	since time.Time // it is stopped
	seen  time.Time // by the proxy
	open  int       // requests that keep it awake
	d     *daemon   // nil where none runs; in a box that is started, it has died

	recoverable bool // from its error
}

// Boxes returns the boxes that are not destroyed, in the order of their creation.
func (s *Server) Boxes() []Box {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Box
	for _, b := range s.sorted() {
		if s.settle(b); b.State != destroyed {
			c := b.Box
			c.Labels, c.Env = maps.Clone(b.Labels), maps.Clone(b.Env)
			list = append(list, c)
		}
	}
	return list
}

// SetState puts a box into a state. In started its daemon runs; in those in which a box has no processes, they die.
func (s *Server) SetState(id, state, errorReason string) {
	s.with(id, func(b *box) {
		b.ErrorReason, b.recoverable = errorReason, false
		switch state {
		case started:
			s.boot(b)
		case stopped, archived, failed, "build_failed":
			s.halt(b, state)
		case destroyed:
			s.destroy(b)
		default:
			b.State, b.ready = state, s.now().AddDate(100, 0, 0) // until the test changes it
		}
	})
}

// Break puts a box into an error that Daytona can repair. Its processes die, its files stay.
func (s *Server) Break(id, errorReason string) {
	s.with(id, func(b *box) {
		s.halt(b, failed)
		b.ErrorReason, b.recoverable = errorReason, true
	})
}

// Kill ends a box's daemon, and with it all that runs in the box, which continues being called started.
func (s *Server) Kill(id string) {
	s.with(id, func(b *box) { s.halt(b, started) })
}

// Vanish takes a box away, as if somebody else had deleted it.
func (s *Server) Vanish(id string) {
	s.with(id, s.destroy)
}

func (s *Server) with(id string, do func(*box)) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil {
		s.t.Errorf("fakedaytona: there is no box %s", id)
		return
	}
	if s.settle(b); b.State != destroyed {
		do(b)
	}
}

// The caller of what follows holds s.mu.

func (s *Server) sorted() []*box {
	return slices.SortedFunc(maps.Values(s.boxes), func(a, b *box) int { return a.seq - b.seq })
}

// find returns the box of this id or name, or nil.
func (s *Server) find(idOrName string) *box {
	for _, b := range s.sorted() {
		if s.settle(b); b.State != destroyed && (b.ID == idOrName || b.Name == idOrName && b.State != destroying) {
			return b
		}
	}
	return nil
}

// settle brings a box up to date.
func (s *Server) settle(b *box) {
	if s.now().Before(b.ready) {
		return
	}
	switch b.State {
	case building:
		if !slices.Contains(s.Images, b.Image) {
			s.halt(b, unbuilt)
			b.ErrorReason = "pull access denied for " + b.Image + ", repository does not exist"
			return
		}
		s.boot(b)
	case creating, starting:
		s.boot(b)
	case destroying:
		s.destroy(b)
	}
}

func (s *Server) add(b *box) error {
	dir, err := os.MkdirTemp("", "box")
	if err != nil {
		return err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	b.ID, b.dir, b.Home = uuid.NewString(), dir, filepath.Join(dir, "home", "daytona")
	s.seq++
	b.seq = s.seq
	b.Created = s.now()
	b.last = b.Created
	if b.Name == "" {
		b.Name = b.ID
	}
	s.boxes[b.ID] = b
	for _, d := range []string{b.Home, filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make a box: %w", err)
		}
	}
	b.State, b.ready = creating, s.now().Add(s.StartAfter)
	return nil
}

func (s *Server) boot(b *box) {
	b.State, b.last = started, s.now()
	if b.d == nil {
		b.d = newDaemon(s.t, b)
	}
}

// halt ends what runs in a box and leaves it in the state.
func (s *Server) halt(b *box, state string) {
	b.State, b.since = state, s.now()
	if b.d != nil {
		b.d.die()
		b.d = nil
	}
}

func (s *Server) destroy(b *box) {
	if b.State == destroyed {
		return
	}
	s.halt(b, destroyed)
	b.gone = s.now()
	// What the box's user may not write to, can be removed anyway.
	_ = filepath.WalkDir(b.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
	if err := removeAll(b.dir); err != nil {
		s.t.Errorf("fakedaytona: remove a box: %v", err)
	}
}

// removeAll removes a box's folder. A request that came before, or the end of a command, may still make a file in a
// folder that is being emptied.
func removeAll(dir string) error {
	for late := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) { // between two tries
		if err := os.RemoveAll(dir); !errors.Is(err, syscall.ENOTEMPTY) || time.Now().After(late) {
			return err
		}
	}
}

// reapIdle does what the original does every ten seconds.
func (s *Server) reapIdle() {
	now := s.now()
	for _, b := range s.sorted() {
		s.settle(b)
		if b.open > 0 {
			b.last = now
		}
		switch minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }; {
		case b.State == started && b.AutoStop > 0 && now.Sub(b.last) > minutes(b.AutoStop):
			s.stop(b)
		case b.State == stopped && b.AutoDelete >= 0 && now.Sub(b.since) > minutes(b.AutoDelete):
			s.destroy(b)
		}
	}
}

// stop stops a box, which is the end of an ephemeral one.
func (s *Server) stop(b *box) {
	if b.AutoDelete == 0 {
		s.destroy(b)
		return
	}
	s.halt(b, stopped)
}
