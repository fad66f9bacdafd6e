// Package scene is what the tests of internal/test/e2e share: a run of a real agent through both built binaries. arbe
// serve has the threads, arbe-pi-runner runs the agent, and a scripted model stands in for the provider. The agents are
// installed by "make agents"; without them the tests fail with that hint.
//
// A Scene is one thread with its runs on this machine, a Host launches its runs into boxes, and a Live run is talked
// to.
package scene

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Bin is the folder of both programs, and server the thread server that all tests share.
var Bin, Server string

// Main is the rest of the TestMain of a room, once that has entered its surroundings: it runs the tests beside a
// thread server, and exits with their status.
func Main(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("the real agents are left out with -short")
		os.Exit(0)
	}
	var serveErr error
	status, err := built.Run("../../../..", func(dir string) (status int) {
		Bin = dir
		status, serveErr = withServer(m.Run)
		return status
	})
	if err := errors.Join(err, serveErr); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		status = 1
	}
	os.Exit(status)
}

// withServer starts a thread server and runs the tests.
func withServer(run func() int) (status int, err error) {
	dir, err := os.MkdirTemp("", "arbe-e2e-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data := filepath.Join(dir, "data")
	if err := os.Setenv("ARBE_DATA", data); err != nil {
		return 1, err
	}
	serve := exec.Command(filepath.Join(Bin, "arbe"), "serve", "--addr", "127.0.0.1:0", "--reconcile=false")
	var log bytes.Buffer
	serve.Stderr = &log
	if err := serve.Start(); err != nil {
		return 1, err
	}
	defer func() {
		err = errors.Join(err, serve.Process.Signal(syscall.SIGTERM))
		if waitErr := serve.Wait(); waitErr != nil {
			err = errors.Join(err, fmt.Errorf("arbe serve: %w\n%s", waitErr, log.String()))
		}
		err = errors.Join(err, described(data))
	}()
	// until the server is there
	for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(data, "address")); err == nil && len(b) > 0 {
			Server = strings.TrimSpace(string(b))
			return run(), nil
		}
	}
	return 1, fmt.Errorf("arbe serve does not begin:\n%s", log.String())
}

// Scene is one run to be: a home, a thread and a model.
type Scene struct {
	T      *testing.T
	Dir    string
	Thread string
	Env    []string
	Model  *model.Server
	Url    string   // of the model
	Args   []string // of the runner, before --
	Prompt string

	Agent              agents.Agent
	tokenOf, readToken string // reader's: the thread and its token

	written map[string]int // once's: the lines of the thread's session files, and how often one of them has each

	Rewritten bool // the agent writes the session file anew: its lines are not one to one on the thread
}

// New prepares a run of the given pi against a model with the given replies.
func New(t *testing.T, version string, replies ...model.Reply) *Scene {
	t.Helper()
	return NewOf(t, "pi", version, replies...)
}

// NewOf prepares a run of the given agent against a model with the given replies.
func NewOf(t *testing.T, name, version string, replies ...model.Reply) *Scene {
	t.Helper()
	agent, err := agents.Find(name, version)
	if err != nil {
		t.Fatal(err)
	}
	s := &Scene{
		T:      t,
		Agent:  agent,
		Dir:    t.TempDir(),
		Model:  &model.Server{Script: model.Script{Replies: replies}},
		Prompt: "do it",

		written: map[string]int{},
	}
	srv := httptest.NewServer(s.Model)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.Url = srv.URL
	if err := agent.Home(s.Dir, s.Url, 50); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(s.Dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Args = []string{"--harness", name, "--cwd", work}
	s.Thread = s.Arbe("thread", "new")
	s.Env = append(
		agent.Env(s.Dir),
		"ARBE_THREAD_ID="+s.Thread,
		"ARBE_STREAM_URL="+Server,
		"ARBE_STREAM_TOKEN="+s.Arbe("token", "mint", "--thread", s.Thread),
		"ARBE_RUN_ID=r1",
		"ARBE_AUTHOR_ID=e2e",
	)
	return s
}

// Dialect is how the scene's agent writes its session.
func (s *Scene) Dialect() session.Dialect {
	s.T.Helper()
	spec, err := harness.Lookup(s.Agent.Harness)
	if err != nil {
		s.T.Fatal(err)
	}
	return spec.Dialect
}

// Known returns the box's record of its run.
func (s *Scene) Known(run string) (k runfolder.Known) {
	s.T.Helper()
	cmd := exec.Command(filepath.Join(Bin, "arbe-pi-runner"), "status", "--json")
	cmd.Env = s.Env
	out, err := cmd.Output()
	if err != nil {
		s.T.Fatal(err)
	}
	var runs []runfolder.Known
	if err := json.Unmarshal(out, &runs); err != nil {
		s.T.Fatalf("%v in %s", err, out)
	}
	for _, k = range runs {
		if k.Run == run {
			return k
		}
	}
	s.T.Fatalf("the box doesn't know run %s: %s", run, out)
	return k
}

// Arbe is what the host's binary prints.
func (s *Scene) Arbe(args ...string) string {
	s.T.Helper()
	out, err := exec.Command(filepath.Join(Bin, "arbe"), args...).Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			err = fmt.Errorf("%w: %s", err, ee.Stderr)
		}
		s.T.Fatalf("arbe %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// Box is what the box's binary prints.
func (s *Scene) Box(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(Bin, "arbe-pi-runner"), args...)
	cmd.Env = s.Env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Runner is a runner under way.
type Runner struct {
	*exec.Cmd
	Log bytes.Buffer
}

func (s *Scene) Start() *Runner {
	s.T.Helper()
	r := &Runner{}
	args := append([]string{"run"}, s.Args...)
	if s.Prompt != "" {
		args = append(args, "--", s.Prompt)
	}
	r.Cmd = exec.CommandContext(s.T.Context(), filepath.Join(Bin, "arbe-pi-runner"), args...)
	r.Env, r.Stderr = s.Env, &r.Log
	if err := r.Start(); err != nil {
		s.T.Fatal(err)
	}
	return r
}

// Status is the runner's exit status, once it has ended.
func (s *Scene) Status(r *Runner) int {
	s.T.Helper()
	err := r.Wait()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		s.T.Fatal(err)
	}
	s.T.Logf("the runner's log:\n%s", r.Log.String())
	return r.ProcessState.ExitCode()
}

// Killed reports whether the runner sent KILL to the agent of the run r1: on a busy machine the agent may not end
// within the runner's grace after a milder signal.
func (s *Scene) Killed() bool {
	s.T.Helper()
	return slices.Contains(s.signals(), outcome.SignalName(int(syscall.SIGKILL)))
}

// Signalled reports whether the runner sent a signal to the agent of the run r1.
func (s *Scene) Signalled() bool {
	s.T.Helper()
	return len(s.signals()) > 0
}

// signals are those that the runner sent to the agent of the run r1.
func (s *Scene) signals() (sent []string) {
	s.T.Helper()
	facts, err := runfolder.ReadFacts(filepath.Join(s.Dir, ".arbe", "runs", s.Thread, "r1"))
	if err != nil {
		s.T.Fatal(err)
	}
	for _, f := range facts {
		if f.Fact == runfolder.FactSignalled {
			sent = append(sent, f.Signal)
		}
	}
	return sent
}

// Entries returns those of the scene's thread, without a start of arbe, as tests poll it.
func (s *Scene) Entries() (all []thread.Entry) {
	s.T.Helper()
	c := &client.Client{Base: thread.BaseURL(Server), Thread: s.Thread, Token: client.StaticToken(s.reader())}
	_, err := c.Read(context.WithoutCancel(s.T.Context()), "0", false, func(e thread.Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil && !client.NotFound(err) {
		s.T.Fatal(err)
	}
	return all
}

// reader returns a token for the scene's thread, which a test may change.
func (s *Scene) reader() string {
	s.T.Helper()
	if s.tokenOf != s.Thread {
		s.tokenOf, s.readToken = s.Thread, s.Arbe("token", "mint", "--thread", s.Thread, "--scope", "read")
	}
	return s.readToken
}

// End is the end of a run on the thread.
type End struct {
	Status string
	Cause  thread.Failed
	Totals thread.Totals
}

func (s *Scene) End() (e End) {
	s.T.Helper()
	var status struct{ Runs []End }
	if err := json.Unmarshal([]byte(s.Arbe("thread", "status", s.Thread, "--json")), &status); err != nil {
		s.T.Fatal(err)
	}
	if len(status.Runs) != 1 {
		s.T.Fatalf("%d runs on the thread", len(status.Runs))
	}
	if got := s.Arbe("thread", "status", s.Thread); got != status.Runs[0].Status {
		s.T.Errorf("status says %s, and with --json %s", got, status.Runs[0].Status)
	}
	return status.Runs[0]
}

// Complete checks that the thread has each line of the run's session, once and in order, and gives it back, and
// nothing after the end.
func (s *Scene) Complete(entries []thread.Entry) {
	s.T.Helper()
	dialect := s.Dialect()
	var got [][]byte
	ended := false
	for _, e := range entries {
		p := Payload[struct{ Type, Status, SubagentOf string }](s.T, e)
		if ended && p.Type != thread.TypeHeartbeat {
			s.T.Errorf("%s came after the end", e.ID)
		}
		ended = ended || p.Type == thread.TypeStatus && p.Status != thread.StatusRunning
		if strings.HasPrefix(e.ID, dialect.Prefix+":") && p.SubagentOf == "" {
			line := hydrate.Parse(e, dialect).Line
			if line == nil {
				s.T.Errorf("%s can't be rebuilt", e.ID)
			}
			got = append(got, line)
		}
	}
	if !ended {
		s.T.Error("the thread has no end")
	}
	var content []byte
	if file := s.Known("r1").Session; file != "" {
		var err error
		if content, err = os.ReadFile(file); err != nil {
			s.T.Fatal(err)
		}
	}
	var want [][]byte
	if len(content) > 0 {
		want = bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	}
	if len(got) != len(want) {
		s.T.Fatalf("%d lines on the thread, %d in the file", len(got), len(want))
	}
	for i := range want {
		var x, y any
		if json.Unmarshal(got[i], &x) != nil || json.Unmarshal(want[i], &y) != nil || !reflect.DeepEqual(x, y) {
			s.T.Errorf("line %d:\ngot  %.500s\nwant %.500s", i, got[i], want[i])
		}
	}
}

// Ends waits until the newest run of a thread has ended, without starts of arbe.
func (s *Scene) Ends(id string) {
	s.T.Helper()
	was := s.Thread
	s.Thread = id
	Until(s.T, "the run's end", func() bool {
		var f thread.Fold
		for _, e := range s.Entries() {
			f.Add(e)
		}
		runs := f.Runs()
		return len(runs) > 0 && runs[len(runs)-1].Status != thread.StatusRunning
	})
	s.Thread = was
}

// Until waits for something, within reason. It looks less often the longer it waits: many a look is work.
func Until(t testing.TB, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for began := time.Now(); !f(); {
		if ctx.Err() != nil {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(max(5*time.Millisecond, time.Since(began)/8)) // between two looks
	}
}

// Payload is an entry's payload as a P; what doesn't fit is left out.
func Payload[P any](t *testing.T, e thread.Entry) (p P) {
	t.Helper()
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(e.Payload, &p); err != nil && !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	return p
}

// AgentPID returns the agent's process id, from the runner's status.
func AgentPID(t *testing.T, s *Scene) int {
	t.Helper()
	k := s.Known("r1")
	if k.State != "running" {
		t.Fatalf("the run is %+v", k)
	}
	return k.AgentPID
}
