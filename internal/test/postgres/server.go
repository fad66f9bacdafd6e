// Package postgres runs a real Postgres for tests, without a port: clients connect to a Unix socket. Postgres refuses
// to run as root; there it runs in a user namespace of its own, or as nobody where the kernel refuses that.
//
// A server ends with the process that started it, even a killed one. What it has committed survives its own end, not
// that of the machine.
package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server is a running Postgres. Its superuser is postgres, and each connection is trusted.
type Server struct {
	programs Programs
	dir      string // has data and the socket
	as       account
	tls      []string // arguments of a server with TLS
	process  *os.Process
	output   *output
	ended    chan struct{} // closed when the process and its children have ended
	err      error         // of the process, once ended is closed
}

// account is the user that the programs run as.
type account int

const (
	asSelf account = iota
	asMapped
	asNobody
)

// Ids that the programs have in a user namespace, and those of nobody.
const (
	mapped = 1000
	nobody = 65534
)

// wait bounds each step of a server's life.
const wait = 5 * time.Minute

// Start makes a database cluster in a new folder and starts a server on it. The caller ends it with Stop.
func Start(p Programs) (*Server, error) {
	if os.Getuid() != 0 {
		return startAs(p, asSelf)
	}
	s, err := startAs(p, asMapped)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		return startAs(p, asNobody)
	}
	return s, err
}

func startAs(p Programs, as account) (s *Server, err error) {
	dir, err := os.MkdirTemp("", "arbe-pg-") // the path of a socket has at most 107 bytes
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	s = &Server{programs: p, dir: dir, as: as}
	if as == asNobody {
		if s.programs, err = p.copied(filepath.Join(dir, "programs")); err != nil {
			return nil, err
		}
		if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(s.data(), 0o700)); err != nil {
			return nil, err
		}
		if err := errors.Join(os.Chown(s.data(), nobody, nobody), os.Chown(dir, nobody, nobody)); err != nil {
			return nil, err
		}
	}
	initdb := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "--no-sync", "--no-locale",
		"-E", "UTF8", "--no-instructions")
	var out bytes.Buffer
	initdb.Stdout, initdb.Stderr = &out, &out
	initdb.WaitDelay = wait
	if err := initdb.Run(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, &out)
	}
	if err := s.Restart(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command returns a command that runs as the server's account.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs.Dir, name), args...)
	cmd.Env, cmd.Dir = s.programs.env(), s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	switch s.as {
	case asMapped:
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: mapped, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: mapped, HostID: os.Getgid(), Size: 1}}
	case asNobody:
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return cmd
}

// Restart starts the server again after Stop or Kill, and returns once it accepts connections.
func (s *Server) Restart() error {
	args := []string{
		"-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off",
		"-c", "full_page_writes=off", "-c", "max_connections=200",
		"-c", "shared_buffers=32MB", "-c", "jit=off", "-c", "wal_level=minimal", "-c", "max_wal_senders=0",
		"-c", "track_activity_query_size=8192", // tests look for queries in pg_stat_activity
	}
	cmd := s.command("postgres", append(args, s.tls...)...)
	cmd.SysProcAttr.Pdeathsig = syscall.SIGINT
	s.output, s.ended = &output{ready: make(chan struct{})}, make(chan struct{})
	cmd.Stderr = s.output
	cmd.Stdout = os.Stdout // it prints nothing; a reader of this process's output waits until the server has ended
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.ended)
		err := cmd.Start()
		s.process = cmd.Process
		started <- err
		if err == nil {
			s.err = cmd.Wait() // until no child has stderr open
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-s.output.ready:
		return nil
	case <-s.ended:
		return fmt.Errorf("postgres ended at its start: %w\n%s", s.err, s.output)
	case <-late.C:
		return errors.Join(fmt.Errorf("postgres is not ready after %s\n%s", wait, s.output), s.Kill())
	}
}

// URL returns the address of a database for a user.
func (s *Server) URL(user, database string) string {
	return "postgres:///" + database + "?" + url.Values{"host": {s.dir}, "user": {user}}.Encode()
}

// ListenTLS makes the server accept connections with TLS at an address of this machine, HOST:PORT, besides those to its
// socket, from its next Restart on. URL is for the socket as it was; the caller restarts the server with an address of
// "" to have that again.
func (s *Server) ListenTLS(address string, cert, key []byte) error {
	if s.tls = nil; address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"server.crt": cert, "server.key": key} {
		path := filepath.Join(s.data(), name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
		if s.as == asNobody {
			if err := os.Chown(path, nobody, nobody); err != nil {
				return err
			}
		}
	}
	for _, setting := range []string{"listen_addresses=" + host, "port=" + port, "ssl=on"} {
		s.tls = append(s.tls, "-c", setting)
	}
	return nil
}

// Kill kills the server, and returns once its children have ended, too. Restart starts it again.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL) }

// Halt ends the server, and returns once its children have ended. Restart starts it again.
func (s *Server) Halt() error {
	if err := s.end(syscall.SIGINT); err != nil { // fast shutdown: connections are cut
		return errors.Join(err, s.Kill())
	}
	return nil
}

// Stop ends the server and removes its folder.
func (s *Server) Stop() error { return errors.Join(s.Halt(), os.RemoveAll(s.dir)) }

func (s *Server) end(by syscall.Signal) error {
	if err := s.process.Signal(by); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-s.ended:
		return nil
	case <-late.C:
		return fmt.Errorf("postgres runs %s after %s\n%s", wait, by, s.output)
	}
}

// output keeps the end of a server's log, and closes ready at the line that it accepts connections.
type output struct {
	ready chan struct{}

	mu    sync.Mutex // guards the fields below
	text  []byte
	found bool
}

const (
	readyLine  = "database system is ready to accept connections"
	mostOutput = 16 << 10 // bytes
)

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, b...)
	if !o.found && bytes.Contains(o.text, []byte(readyLine)) {
		o.found = true
		close(o.ready)
	}
	if over := len(o.text) - mostOutput; over > 0 {
		o.text = bytes.Clone(o.text[over:])
	}
	return len(b), nil
}

// String returns the end of the log.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.text))
}
