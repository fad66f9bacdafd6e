// Package e2e runs the real agents through both built binaries: arbe serve has the threads, arbe-pi-runner runs the
// agent, and a scripted model stands in for the provider. The agents are installed by "make agents"; without them the
// tests fail with that hint.
package e2e_test

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
	"arbe.0sk.ar/runner/internal/test/surroundings"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// bin is the folder of both programs, and server the thread server that all tests share.
var bin, server string

func TestMain(m *testing.M) {
	if how := os.Getenv(loadVar); how != "" {
		os.Exit(loadAgent(how))
	}
	surroundings.Enter()
	flag.Parse()
	if testing.Short() {
		fmt.Println("the real agents are left out with -short")
		return
	}
	var serveErr error
	status, err := built.Run("../../..", func(dir string) (status int) {
		bin = dir
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
	serve := exec.Command(filepath.Join(bin, "arbe"), "serve", "--addr", "127.0.0.1:0", "--reconcile=false")
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
			server = strings.TrimSpace(string(b))
			return run(), nil
		}
	}
	return 1, fmt.Errorf("arbe serve does not begin:\n%s", log.String())
}

// scene is one run to be: a home, a thread and a model.
type scene struct {
	t      *testing.T
	dir    string
	thread string
	env    []string
	model  *model.Server
	url    string   // of the model
	args   []string // of the runner, before --
	prompt string

	agent              agents.Agent
	tokenOf, readToken string // reader's: the thread and its token

	written map[string]int // once's: the lines of the thread's session files, and how often one of them has each

	rewritten bool // the agent writes the session file anew: its lines are not one to one on the thread
}

// newScene prepares a run of the given pi against a model with the given replies.
func newScene(t *testing.T, version string, replies ...model.Reply) *scene {
	t.Helper()
	return newSceneOf(t, "pi", version, replies...)
}

// newSceneOf prepares a run of the given agent against a model with the given replies.
func newSceneOf(t *testing.T, name, version string, replies ...model.Reply) *scene {
	t.Helper()
	agent, err := agents.Find(name, version)
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{
		t:      t,
		agent:  agent,
		dir:    t.TempDir(),
		model:  &model.Server{Script: model.Script{Replies: replies}},
		prompt: "do it",

		written: map[string]int{},
	}
	srv := httptest.NewServer(s.model)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.url = srv.URL
	if err := agent.Home(s.dir, s.url, 50); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(s.dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	s.args = []string{"--harness", name, "--cwd", work}
	s.thread = s.arbe("thread", "new")
	s.env = append(
		agent.Env(s.dir),
		"ARBE_THREAD_ID="+s.thread,
		"ARBE_STREAM_URL="+server,
		"ARBE_STREAM_TOKEN="+s.arbe("token", "mint", "--thread", s.thread),
		"ARBE_RUN_ID=r1",
		"ARBE_AUTHOR_ID=e2e",
	)
	return s
}

// dialect is how the scene's agent writes its session.
func (s *scene) dialect() session.Dialect {
	s.t.Helper()
	spec, err := harness.Lookup(s.agent.Harness)
	if err != nil {
		s.t.Fatal(err)
	}
	return spec.Dialect
}

// known returns the box's record of its run.
func (s *scene) known(run string) (k runfolder.Known) {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(bin, "arbe-pi-runner"), "status", "--json")
	cmd.Env = s.env
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatal(err)
	}
	var runs []runfolder.Known
	if err := json.Unmarshal(out, &runs); err != nil {
		s.t.Fatalf("%v in %s", err, out)
	}
	for _, k = range runs {
		if k.Run == run {
			return k
		}
	}
	s.t.Fatalf("the box doesn't know run %s: %s", run, out)
	return k
}

// arbe is what the host's binary prints.
func (s *scene) arbe(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "arbe"), args...).Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			err = fmt.Errorf("%w: %s", err, ee.Stderr)
		}
		s.t.Fatalf("arbe %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// box is what the box's binary prints.
func (s *scene) box(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(bin, "arbe-pi-runner"), args...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// runner is a runner under way.
type runner struct {
	*exec.Cmd
	stderr bytes.Buffer
}

func (s *scene) start() *runner {
	s.t.Helper()
	r := &runner{}
	args := append([]string{"run"}, s.args...)
	if s.prompt != "" {
		args = append(args, "--", s.prompt)
	}
	r.Cmd = exec.CommandContext(s.t.Context(), filepath.Join(bin, "arbe-pi-runner"), args...)
	r.Env, r.Stderr = s.env, &r.stderr
	if err := r.Start(); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// status is the runner's exit status, once it has ended.
func (s *scene) status(r *runner) int {
	s.t.Helper()
	err := r.Wait()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		s.t.Fatal(err)
	}
	s.t.Logf("the runner's log:\n%s", r.stderr.String())
	return r.ProcessState.ExitCode()
}

// killed reports whether the runner sent KILL to the agent of the run r1: on a busy machine the agent may not end
// within the runner's grace after a milder signal.
func (s *scene) killed() bool {
	s.t.Helper()
	return slices.Contains(s.signals(), outcome.SignalName(int(syscall.SIGKILL)))
}

// signalled reports whether the runner sent a signal to the agent of the run r1.
func (s *scene) signalled() bool {
	s.t.Helper()
	return len(s.signals()) > 0
}

// signals are those that the runner sent to the agent of the run r1.
func (s *scene) signals() (sent []string) {
	s.t.Helper()
	facts, err := runfolder.ReadFacts(filepath.Join(s.dir, ".arbe", "runs", s.thread, "r1"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range facts {
		if f.Fact == runfolder.FactSignalled {
			sent = append(sent, f.Signal)
		}
	}
	return sent
}

// entries returns those of the scene's thread, without a start of arbe, as tests poll it.
func (s *scene) entries() (all []thread.Entry) {
	s.t.Helper()
	c := &thread.Client{Base: thread.BaseURL(server), Thread: s.thread, Token: thread.StaticToken(s.reader())}
	_, err := c.Read(context.WithoutCancel(s.t.Context()), "0", false, func(e thread.Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil && !thread.NotFound(err) {
		s.t.Fatal(err)
	}
	return all
}

// reader returns a token for the scene's thread, which a test may change.
func (s *scene) reader() string {
	s.t.Helper()
	if s.tokenOf != s.thread {
		s.tokenOf, s.readToken = s.thread, s.arbe("token", "mint", "--thread", s.thread, "--scope", "read")
	}
	return s.readToken
}

// end is the end of a run on the thread.
type end struct {
	Status string
	Cause  thread.Failed
	Totals thread.Totals
}

func (s *scene) end() (e end) {
	s.t.Helper()
	var status struct{ Runs []end }
	if err := json.Unmarshal([]byte(s.arbe("thread", "status", s.thread, "--json")), &status); err != nil {
		s.t.Fatal(err)
	}
	if len(status.Runs) != 1 {
		s.t.Fatalf("%d runs on the thread", len(status.Runs))
	}
	if got := s.arbe("thread", "status", s.thread); got != status.Runs[0].Status {
		s.t.Errorf("status says %s, and with --json %s", got, status.Runs[0].Status)
	}
	return status.Runs[0]
}

// complete checks that the thread has each line of the run's session, once and in order, and gives it back, and
// nothing after the end.
func (s *scene) complete(entries []thread.Entry) {
	s.t.Helper()
	dialect := s.dialect()
	var got [][]byte
	ended := false
	for _, e := range entries {
		p := payload[struct{ Type, Status, SubagentOf string }](s.t, e)
		if ended && p.Type != thread.TypeHeartbeat {
			s.t.Errorf("%s came after the end", e.ID)
		}
		ended = ended || p.Type == thread.TypeStatus && p.Status != thread.StatusRunning
		if strings.HasPrefix(e.ID, dialect.Prefix+":") && p.SubagentOf == "" {
			line := hydrate.Parse(e, dialect).Line
			if line == nil {
				s.t.Errorf("%s can't be rebuilt", e.ID)
			}
			got = append(got, line)
		}
	}
	if !ended {
		s.t.Error("the thread has no end")
	}
	var content []byte
	if file := s.known("r1").Session; file != "" {
		var err error
		if content, err = os.ReadFile(file); err != nil {
			s.t.Fatal(err)
		}
	}
	var want [][]byte
	if len(content) > 0 {
		want = bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	}
	if len(got) != len(want) {
		s.t.Fatalf("%d lines on the thread, %d in the file", len(got), len(want))
	}
	for i := range want {
		var x, y any
		if json.Unmarshal(got[i], &x) != nil || json.Unmarshal(want[i], &y) != nil || !reflect.DeepEqual(x, y) {
			s.t.Errorf("line %d:\ngot  %.500s\nwant %.500s", i, got[i], want[i])
		}
	}
}

// ends waits until the newest run of a thread has ended, without starts of arbe.
func (s *scene) ends(id string) {
	s.t.Helper()
	was := s.thread
	s.thread = id
	until(s.t, "the run's end", func() bool {
		var f thread.Fold
		for _, e := range s.entries() {
			f.Add(e)
		}
		runs := f.Runs()
		return len(runs) > 0 && runs[len(runs)-1].Status != thread.StatusRunning
	})
	s.thread = was
}

// until waits for something, within reason. It looks less often the longer it waits: many a look is work.
func until(t testing.TB, what string, f func() bool) {
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

// payload is an entry's payload as a P; what doesn't fit is left out.
func payload[P any](t *testing.T, e thread.Entry) (p P) {
	t.Helper()
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(e.Payload, &p); err != nil && !errors.As(err, &wrong) {
		t.Fatal(err)
	}
	return p
}

// agentPID returns the agent's process id, from the runner's status.
func agentPID(t *testing.T, s *scene) int {
	t.Helper()
	k := s.known("r1")
	if k.State != "running" {
		t.Fatalf("the run is %+v", k)
	}
	return k.AgentPID
}
