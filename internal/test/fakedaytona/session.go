package fakedaytona

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/google/uuid"
)

// session is a shell that commands are given to, one after the other. They are in its own process: a directory
// changed stays changed, an exit is the shell's, and a command sees the variables that the session has set for
// itself, as with the original: dir, log, sp, ep and ip, in place of those that the box has by these names.
//
// A command's outputs are pipes with names, whose lines are added to its log; it is done when the shell has reported
// its end and no process holds the pipes any more.
type session struct {
	id    string
	d     *daemon
	dir   string
	shell *exec.Cmd
	stdin *os.File
	next  *os.File      // a line on it starts the shell's next command
	gone  chan struct{} // closed when the session is deleted

	files sync.Mutex // is held while a file of a command is made, and while they are removed
	feed  sync.Mutex // is held while the shell's input is written to
	mu    sync.Mutex
	ended bool // the shell has
	cmds  map[string]*command
}

// errBroken is the original's error where a session's shell has ended.
var errBroken = errors.New("bad request: failed to write command: write |1: broken pipe")

func (d *daemon) newSession(id string) (*session, error) {
	s := &session{
		id:   id,
		d:    d,
		dir:  filepath.Join(d.home, ".daytona", "sessions", id),
		gone: make(chan struct{}),
		cmds: map[string]*command{},
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	status, say, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	defer say.Close()
	wait, next, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close(), status.Close())
	}
	defer wait.Close()
	s.stdin, s.next = stdin, next
	s.shell = d.command("", nil, shell())
	s.shell.Stdin, s.shell.ExtraFiles = in, []*os.File{say, wait} // 3 and 4
	if err := s.shell.Start(); err != nil {                       // the caller sees to it that the daemon lives
		return nil, errors.Join(err, stdin.Close(), status.Close(), next.Close())
	}
	d.running.Go(func() { s.watch(status) })
	return s, nil
}

// watch reads from the shell which of its commands have ended, until the shell ends.
func (s *session) watch(status *os.File) {
	exited := make(chan struct{})
	go func() {
		_ = s.shell.Wait() // its status is not needed
		close(exited)
		_ = status.Close() // a child may hold the other end
	}()
	for lines := bufio.NewScanner(status); lines.Scan(); {
		id, code, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(code)
		if err != nil {
			continue // not the shell's
		}
		s.mu.Lock()
		c := s.cmds[id]
		s.mu.Unlock()
		if c != nil {
			go func() {
				c.finish(n)
				_, _ = s.next.WriteString("\n") // the shell may have ended
			}()
		}
	}
	<-exited
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	_ = s.stdin.Close() // nobody reads it
	_ = s.next.Close()
	for _, c := range s.cmds {
		c.release()
	}
}

// exec gives the shell a command, which is done when the command's done is closed, and never where the shell ends
// before.
func (s *session) exec(text string, echo bool) (*command, error) {
	c, err := newCommand(filepath.Join(s.dir, uuid.NewString()), text, echo)
	if err != nil {
		return nil, err
	}
	c.files = &s.files
	s.mu.Lock()
	ended := s.ended
	if !ended {
		s.cmds[c.id] = c
	}
	s.mu.Unlock()
	if ended {
		c.release()
		return nil, errBroken
	}
	s.feed.Lock()
	defer s.feed.Unlock()
	_, err = fmt.Fprintf(s.stdin, "dir=%s log=%s sp=%s ep=%s ip=%s\n",
		quote(c.dir), quote(c.dir+"/output.log"), quote(c.out), quote(c.err), quote(c.in))
	if err == nil {
		_, err = fmt.Fprintf(s.stdin, "eval %s >%s 2>%s <%s 3>&- 4<&-; printf '%%s %%s\\n' %s $? >&3; read -r _ <&4\n",
			quote(text), quote(c.out), quote(c.err), quote(c.in), c.id)
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cmds, c.id)
		c.release()
		return nil, errBroken
	}
	return c, nil
}

// end kills the shell, its group and all below it, and removes what it left.
func (s *session) end() error {
	close(s.gone)
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if !ended {
		killTree(s.shell.Process.Pid)
	} else {
		_ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) // the group may have ended, too
	}
	s.files.Lock()
	defer s.files.Unlock()
	return os.RemoveAll(s.dir)
}

func (s *session) view() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []any{}
	for _, c := range s.cmds { // in no order, as with the original
		list = append(list, c.view())
	}
	return map[string]any{"sessionId": s.id, "commands": list}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
