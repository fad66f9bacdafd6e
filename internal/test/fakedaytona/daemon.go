package fakedaytona

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// daemon answers for a box while that is started. What it starts, and what it remembers, dies with it; files
// stay.
type daemon struct {
	t    testing.TB
	id   string
	dir  string // of the box
	home string
	env  []string
	mux  *http.ServeMux
	dead chan struct{}

	running  sync.WaitGroup // the sessions' shells
	mu       sync.Mutex
	sessions map[string]*session
}

func newDaemon(t testing.TB, b *box) *daemon {
	d := &daemon{
		t:        t,
		id:       b.ID,
		dir:      b.dir,
		home:     b.Home,
		mux:      http.NewServeMux(),
		dead:     make(chan struct{}),
		sessions: map[string]*session{},
	}
	d.env = []string{
		"HOME=" + d.home, "TMPDIR=" + filepath.Join(d.dir, "tmp"), "PATH=" + os.Getenv("PATH"), "USER=daytona",
		"LANG=C.UTF-8", "SHELL=" + shell(), marker + d.id,
	}
	for k, v := range b.Env {
		d.env = append(d.env, k+"="+v)
	}
	says := func(v map[string]string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, v) }
	}
	d.mux.HandleFunc("GET /version", says(map[string]string{"version": Version}))
	for _, path := range []string{"/user-home-dir", "/work-dir", "/project-dir"} {
		d.mux.HandleFunc("GET "+path, says(map[string]string{"dir": d.home}))
	}
	d.mux.HandleFunc("POST /process/execute", d.execute)
	d.sessionRoutes()
	d.fileRoutes()
	d.gitRoutes()
	return d
}

func (d *daemon) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// die ends the daemon and all that runs in its box.
func (d *daemon) die() {
	d.mu.Lock() // nothing is being started
	close(d.dead)
	d.mu.Unlock()
	if !killBox(d.id, d.dir) {
		d.t.Errorf("fakedaytona: what runs in the box %s does not end", d.id)
	}
	d.running.Wait()
}

func (d *daemon) isDead() bool {
	select {
	case <-d.dead:
		return true
	default:
		return false
	}
}

// command is a command in the box, in a process group of its own. A directory that is not absolute is one below the
// work directory.
func (d *daemon) command(dir string, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = d.path(dir)
	cmd.Env = slices.Concat(d.env, env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// path is where a path of the API is. There is no tilde in it.
func (d *daemon) path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(d.home, p)
}

// shell returns the shell of the boxes. The tests' commands are for bash.
func shell() string {
	if path, err := exec.LookPath("bash"); err == nil {
		return path
	}
	return "/bin/sh"
}

// ask reads a request's JSON, and answers where it is none.
func ask(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		complain(w, r,
			toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: invalid request body: " + err.Error()})
		return false
	}
	return true
}
