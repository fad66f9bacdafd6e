// Package faults breaks what a run stands on, at each moment of its life, and looks whether the run still gets its
// one right end and the thread every line of the session, once and in order. The runner is the real binary, keeper
// and worker; the agent is a fake one, which can be held at a moment; the thread is one that fails the test on its own
// on a gap, a duplicate, a changed payload or an entry after the end.
package faults_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/internal/test/surroundings"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// bin is the folder of both programs.
var bin string

func TestMain(m *testing.M) {
	if os.Getenv(noPidfdVar) != "" {
		os.Exit(runWithoutPidfd(os.Args[1:]))
	}
	if needle := os.Getenv(thiefVar); needle != "" {
		os.Exit(thieve(needle))
	}
	if os.Getenv(fakeagent.PlanVar) != "" {
		os.Exit(fakeagent.Main())
	}
	if os.Getenv(hostileVar) != "" {
		os.Exit(hostileMain())
	}
	if status, is := asRoot(); is {
		os.Exit(status)
	}
	surroundings.Enter()
	built.Main(m, "../../..", func(dir string) { bin = dir })
}

// patience is how long anything may take. What takes longer has failed.
const patience = 5 * time.Minute

// scene is one run and what is done to it.
type scene struct {
	t       *testing.T
	dir     string
	run     string // its id, which no other scene's run has
	program string // the runner's path
	server  *fakethread.Server
	alien   string   // the id of a line that somebody else has posted, as something else
	real    *service // arbe serve, where it has the thread instead of server
	front   *front
	env     map[string]string
	args    []string
	plan    []string
	state   string
	wrap    string // what a shell does before it becomes the runner
	file    string // the session's, where the scene names it; "" for the runner's choice
	moved   string // where the folder of all runs is now; "" where it was
	session string // the session file's path, once the run's record has it

	group    string   // the cgroup's folder, where the scene has one
	first    int      // the worker when the fault struck
	sink     *os.File // the runner's stdout and stderr; nil for a buffer
	tty      bool     // sink is its terminal
	prompted bool     // the prompt is on the thread

	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{} // the process that was started is gone

	mu    sync.Mutex
	trap  func(fakethread.Call) bool // calls that are held
	held  chan struct{}              // closed when one is
	freed chan struct{}              // closed when they continue
	fails func(fakethread.Call) fakethread.Fault
	reads func(fakethread.Call) fakethread.Fault // of reads; nil for none

	hold   sync.Once
	loose  sync.Once
	struck time.Time // when the fault was over
}

func newScene(t *testing.T, run string) *scene {
	t.Helper()
	s := &scene{
		t: t, run: run, dir: t.TempDir(), ended: make(chan struct{}), held: make(chan struct{}),
		freed: make(chan struct{}), env: map[string]string{},
	}
	s.state, s.program = filepath.Join(s.dir, "state"), filepath.Join(bin, "arbe-pi-runner")
	s.server = fakethread.New(t, s.hook)
	s.front = newFront(t, strings.TrimPrefix(s.server.URL, "http://"))
	t.Cleanup(s.sweep)
	return s
}

func (s *scene) hook(c fakethread.Call) fakethread.Fault {
	s.mu.Lock()
	trap, fails, reads := s.trap, s.fails, s.reads
	s.mu.Unlock()
	if c.Method == "GET" && reads != nil {
		return reads(c)
	}
	if trap != nil && c.Method == "POST" && trap(c) {
		s.hold.Do(func() { close(s.held) })
		select {
		case <-s.freed:
		case <-s.t.Context().Done():
		}
		s.mu.Lock()
		fails = s.fails // what has happened meanwhile
		s.mu.Unlock()
	}
	if fails != nil && c.Method == "POST" {
		return fails(c)
	}
	return fakethread.Fault{}
}

// entries are those that the thread has.
func (s *scene) entries() []thread.Entry {
	if s.real != nil {
		return s.real.entries(s.t, "t1")
	}
	return s.server.Entries()
}

// holdCalls lets calls that have such an entry wait until release.
func (s *scene) holdCalls(meant func(thread.Entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trap = func(c fakethread.Call) bool { return slices.ContainsFunc(c.Entries, meant) }
}

// failCalls lets the next n posts go wrong in the same way.
func (s *scene) failCalls(n int, f fakethread.Fault) {
	s.failWith(func(fakethread.Call) fakethread.Fault {
		if n == 0 {
			return fakethread.Fault{}
		}
		n--
		return f
	})
}

// failWith asks f about all posts from now on, one at a time.
func (s *scene) failWith(f func(fakethread.Call) fakethread.Fault) {
	var one sync.Mutex
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = func(c fakethread.Call) fakethread.Fault {
		one.Lock()
		defer one.Unlock()
		return f(c)
	}
}

func (s *scene) path(name string) string { return filepath.Join(s.dir, name) }

// folder is the run's folder.
func (s *scene) folder() string {
	state := s.state
	if state == "" {
		dirs, err := filepath.Glob(s.path("arbe-state-*"))
		if err != nil || len(dirs) == 0 {
			return "not yet"
		}
		state = dirs[0]
	}
	if s.moved != "" {
		return filepath.Join(s.moved, "t1", s.run)
	}
	return filepath.Join(state, "runs", "t1", s.run)
}

// command is the runner with a command and the scene's environment.
func (s *scene) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	if args[0] == "run" {
		args = append(args, "--agent-bin", self, "--cwd", s.dir)
		if s.file != "" {
			args = append(args, "--session", s.file)
		}
		if args = append(args, s.args...); !s.prompted {
			args = append(args, "--", "do it")
		}
	}
	path := s.program
	cmd := exec.Command(path, args...)
	if s.wrap != "" {
		cmd = exec.Command("sh", append([]string{"-c", s.wrap + `; exec "$0" "$@"`, path}, args...)...)
	}
	env := map[string]string{
		"PATH": os.Getenv(
			"PATH",
		), "HOME": s.dir, "TMPDIR": s.dir, fakeagent.PlanVar: s.path("plan"), "GORACE": "atexit_sleep_ms=0",
		"ARBE_THREAD_ID": "t1",
		"ARBE_RUN_ID":    s.run, "ARBE_STREAM_URL": "http://" + s.front.addr, "ARBE_STATE_DIR": s.state,
		"ARBE_STREAM_TOKEN": s.server.Current(),
		"ARBE_HEARTBEAT":    "1s", // two may cross the terminal: two seconds, on however busy a machine
	}
	if s.real != nil {
		env["ARBE_STREAM_TOKEN"] = s.real.token
	}
	for k, v := range s.env {
		env[k] = v
	}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

// start starts the run.
func (s *scene) start() {
	s.t.Helper()
	s.write("plan", strings.Join(s.plan, "\n"))
	s.cmd = s.command("run")
	s.cmd.Stderr = &s.stderr
	if s.sink != nil {
		s.cmd.Stdout, s.cmd.Stderr = s.sink, s.sink
	}
	if s.tty {
		s.cmd.Stdin, s.cmd.SysProcAttr = s.sink, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait() // how it ended is looked at later
	}()
}

func (s *scene) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for something that must come. It looks less often the longer it waits, 20 times a second at least.
func (s *scene) until(what string, f func() bool) {
	s.t.Helper()
	for began := time.Now(); !f(); {
		waited := time.Since(began)
		if waited > patience {
			s.t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(min(max(2*time.Millisecond, waited/8), 50*time.Millisecond)) // between two looks
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// fact is a line of facts.jsonl.
type fact struct {
	At   time.Time
	Fact string
	PID  int
}

func (s *scene) fact(name string) (found fact, ok bool) {
	b, err := os.ReadFile(filepath.Join(s.folder(), "facts.jsonl"))
	if err != nil {
		return found, false
	}
	for line := range strings.Lines(string(b)) {
		var f fact
		if json.Unmarshal([]byte(line), &f) == nil && f.Fact == name {
			found, ok = f, true
		}
	}
	return found, ok
}

// sessionFile is where the session is, once that is decided.
func (s *scene) sessionFile() (path string) {
	s.until("a session", func() bool {
		var rec struct{ Session string }
		b, err := os.ReadFile(filepath.Join(s.folder(), "run.json"))
		if err == nil && json.Unmarshal(b, &rec) == nil {
			s.session = rec.Session
		}
		return s.session != ""
	})
	return s.session
}

// finish waits until no process of the runner is left, and returns the exit status of the one that was started; -1
// where it was killed.
func (s *scene) finish() int {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatalf("the runner does not end:\n%s", s.stderr.String())
	}
	s.until(
		"the end of all of the runner",
		func() bool { return len(processes("keep "+s.run))+len(processes("work "+s.run)) == 0 },
	)
	return s.cmd.ProcessState.ExitCode()
}

// recover finishes what a dead runner left, and returns what it prints. The kernel may still be about to take the
// dead one's lock away.
func (s *scene) recover() string {
	s.t.Helper()
	s.until("nobody has the lock", func() bool {
		out, err := s.command("status").Output()
		return err == nil && !strings.HasPrefix(string(out), "opening") && !strings.HasPrefix(string(out), "running") &&
			!strings.HasPrefix(string(out), "ending")
	})
	cmd := s.command("recover")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("recover: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// verdict returns the run's outcome on the thread, with the class of a failure, and when its last entry was received,
// by the server's clock.
func (s *scene) verdict() (word string, at time.Time) {
	s.t.Helper()
	ends := 0
	for _, e := range s.entries() {
		if !strings.HasPrefix(e.ID, s.run+".end.") {
			continue
		}
		var p struct{ Type, Status, ErrorClass, Reason string }
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			s.t.Fatal(err)
		}
		switch p.Type {
		case thread.TypeFailed:
			word = "failed: " + p.ErrorClass
		case thread.TypeOrphaned:
			word = "orphaned: " + p.Reason
		default:
			ends++
			if word == "" {
				word = p.Status
			}
		}
		at = e.Received()
	}
	if ends > 1 {
		s.t.Errorf("%d terminals", ends)
	}
	return word, at
}

// complete checks that the thread gives back each line of the session file, in order.
func (s *scene) complete() {
	s.t.Helper()
	content, err := os.ReadFile(s.sessionFile())
	if err != nil {
		s.t.Fatal(err)
	}
	want := bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	got := s.lines()
	if len(got) != len(want) {
		s.t.Fatalf("%d lines on the thread, %d in the file", len(got), len(want))
	}
	for i := range want {
		var x, y any
		if json.Unmarshal(want[i], &y) != nil {
			x, y = string(got[i]), string(want[i])
		} else if json.Unmarshal(got[i], &x) != nil {
			x = string(got[i])
		}
		if !reflect.DeepEqual(x, y) {
			s.t.Errorf("line %d:\ngot  %.300s\nwant %.300s", i, got[i], want[i])
		}
	}
}

// lines are the session's lines as the thread gives them back.
func (s *scene) lines() (lines [][]byte) {
	s.t.Helper()
	for _, e := range s.entries() {
		if strings.HasPrefix(e.ID, "pi:") && e.ID != s.alien {
			line := hydrate.Parse(e, session.Pi).Line
			if line == nil {
				s.t.Errorf("%s can't be rebuilt", e.ID)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// digest returns the digest of the lines on the thread, which the terminal must have.
func (s *scene) digest() string {
	h := sha256.New()
	for _, e := range s.entries() {
		if strings.HasPrefix(e.ID, "pi:") {
			fmt.Fprintln(h, e.ID)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
