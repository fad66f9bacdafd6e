package skew_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// box is a machine in which runners of both versions run fake agents for one thread.
type box struct {
	s      *site
	dir    string // home
	thread string
	agent  []string // arguments that name the agent
	env    []string // of the agent
}

// newBox makes a box for a thread.
func newBox(s *site, id string) *box {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	b := &box{s: s, dir: s.t.TempDir(), thread: id, agent: []string{"--agent-bin", self}}
	b.env = []string{fakeagent.PlanVar + "=" + filepath.Join(b.dir, "plan"), "PATH=" + os.Getenv("PATH")}
	return b
}

// plan gives the next agent its plan.
func (b *box) plan(lines ...string) {
	b.s.t.Helper()
	write(b.s.t, filepath.Join(b.dir, "plan"), strings.Join(lines, "\n"))
}

// command is the runner of a version.
func (b *box) command(v version, run string, args ...string) *exec.Cmd {
	cmd := exec.Command(v.runner(), args...)
	cmd.Dir = b.dir
	cmd.Env = append([]string{
		"HOME=" + b.dir, "TMPDIR=" + b.dir, "ARBE_THREAD_ID=" + b.thread, "ARBE_RUN_ID=" + run,
		"ARBE_STREAM_URL=http://" + b.s.addr, "ARBE_STREAM_TOKEN=" + mint(b.s.t, b.thread), "ARBE_HEARTBEAT=1s",
		"GORACE=atexit_sleep_ms=0",
	}, b.env...)
	return cmd
}

// start starts a run by a version.
func (b *box) start(v version, run string, args ...string) *exec.Cmd {
	b.s.t.Helper()
	all := append([]string{"run", "--cwd", b.dir}, b.agent...)
	cmd := b.command(v, run, append(all, args...)...)
	cmd.Stderr = &bytes.Buffer{}
	if err := cmd.Start(); err != nil {
		b.s.t.Fatal(err)
	}
	return cmd
}

// ends waits for the end of a run, and compares its exit status.
func (b *box) ends(cmd *exec.Cmd, want int) {
	b.s.t.Helper()
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // it may have ended
	defer late.Stop()
	err := cmd.Wait()
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		b.s.t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		b.s.t.Errorf("%v: exit status %d, want %d\n%s", cmd.Args, got, want, cmd.Stderr)
	}
}

// runs runs an agent by a version to its end, which must be completed.
func (b *box) runs(v version, run string, args ...string) {
	b.s.t.Helper()
	b.ends(b.start(v, run, args...), 0)
}

// session returns the session of a run, as the agent has written it.
func (b *box) session(run string) []byte {
	b.s.t.Helper()
	var rec struct{ Session string }
	path := filepath.Join(b.dir, ".arbe", "runs", b.thread, run, "run.json")
	if err := json.Unmarshal(read(b.s.t, path), &rec); err != nil {
		b.s.t.Fatal(err)
	}
	return read(b.s.t, rec.Session)
}

// whole checks that the thread has each line of a session once and in order, and an end of each run with a status.
func (b *box) whole(file []byte, status ...string) {
	b.s.t.Helper()
	entries := b.s.entries(b.thread)
	want := bytes.Split(bytes.TrimSuffix(file, []byte("\n")), []byte("\n"))
	var got [][]byte
	var fold thread.Fold
	for _, e := range entries {
		fold.Add(e)
		if strings.HasPrefix(e.ID, session.Pi.Prefix+":") {
			got = append(got, hydrate.Parse(e, session.Pi).Line)
		}
	}
	if len(got) != len(want) {
		b.s.t.Errorf("%d lines on the thread, %d in the session", len(got), len(want))
	}
	for i := range min(len(want), len(got)) {
		if !same(got[i], want[i]) {
			b.s.t.Errorf("line %d:\ngot  %.300s\nwant %.300s", i, got[i], want[i])
		}
	}
	var ends []string
	for _, r := range fold.Runs() {
		if r.Provisional {
			b.s.t.Errorf("the end of run %s is provisional", r.ID)
		}
		ends = append(ends, r.Status)
	}
	if !reflect.DeepEqual(ends, status) {
		b.s.t.Errorf("the runs are %q, want %q", ends, status)
	}
}

// same reports whether two lines are equal as JSON, but for the folder of a session, which is another one in each box.
func same(a, b []byte) bool {
	var x, y map[string]any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	delete(x, "cwd")
	delete(y, "cwd")
	return reflect.DeepEqual(x, y)
}

// mint returns a token that may write a thread.
func mint(t *testing.T, id string) string {
	t.Helper()
	token, err := signed(id)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func signed(id string) (string, error) {
	return token.Sign([]byte(secret), token.Grant{
		Stream: thread.StreamName(id), Scope: []string{token.ScopeWrite}, Until: time.Now().Add(time.Hour),
	})
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// exists reports whether there is a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
