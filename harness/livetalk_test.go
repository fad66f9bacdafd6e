package harness_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

var record = flag.Bool("record", false, "keep the conversations with real agents in testdata/live")

// talk is a test's conversation with a real agent, over a FIFO. It follows the agent's stdout and session by reading
// the files.
type talk struct {
	t     *testing.T
	spec  harness.Spec
	live  *harness.Live
	model *model.Server
	dir   string // the agent's working directory
	cmd   *exec.Cmd
	in    *os.File
	box   harness.Box
	task  harness.Task

	stdout, session tail
	state           harness.Talk
	events          []harness.Event
	accepted        map[string]bool
	answered        map[string]bool
	again           map[string]bool   // messages that were refused, and may be put again
	sent            []harness.Message // written and not taken in
	all             []harness.Message // all that were written
	taken           []string          // texts, in the order of the session
	dropped         []string
	marks           []string // how turns ended
	ids             int
}

// tail reads the lines that are added to a file.
type tail struct {
	path string
	at   int64
}

func (f *tail) lines(t *testing.T) (lines [][]byte) {
	t.Helper()
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) || f.path == "" {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	b = b[f.at:]
	for {
		line, rest, found := bytes.Cut(b, []byte("\n"))
		if !found {
			return lines
		}
		lines = append(lines, line)
		f.at += int64(len(line)) + 1
		b = rest
	}
}

// home is an agent's home folder, its working directory and its model. It outlives the agent.
type home struct {
	name, dir, work string
	model           *model.Server
	env             []string
}

// liveVersions are the versions that the tests speak to.
var liveVersions = map[string]string{"pi": "0.87.1", "codex": "0.169.0", "claude-code": "2.1.329"}

func newHome(t *testing.T, name string, replies ...model.Reply) home {
	t.Helper()
	a, err := agents.Find(name, liveVersions[name])
	if err != nil {
		t.Fatal(err)
	}
	m := &model.Server{Script: model.Script{Replies: replies}}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	h := home{name: name, dir: t.TempDir(), work: t.TempDir(), model: m}
	if err := a.Home(h.dir, srv.URL, 1000); err != nil {
		t.Fatal(err)
	}
	h.env = a.Env(h.dir)
	return h
}

// start starts the agent; resume is the session to resume, if any.
func (h home) start(t *testing.T, resume harness.Session, args ...string) *talk {
	t.Helper()
	return h.startAs(t, resume, func(s string) string { return s }, args...)
}

// startAs is start with its arguments and what opens the session edited.
func (h home) startAs(t *testing.T, resume harness.Session, edit func(string) string, args ...string) *talk {
	t.Helper()
	s := spec(t, h.name)
	vars := map[string]string{}
	for _, v := range h.env {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	d := &talk{
		t: t, spec: s, live: s.Live, model: h.model, dir: h.work,
		box:      harness.Box{Getenv: func(name string) string { return vars[name] }, Dir: h.dir},
		accepted: map[string]bool{}, answered: map[string]bool{}, again: map[string]bool{},
	}
	d.task = harness.Task{Session: resume, Resume: resume != harness.Session{}, Args: args}
	if !d.task.Resume {
		d.task.ID = uuid.NewString()
		if s.Create != nil {
			d.task.Path = filepath.Join(h.dir, "session.jsonl")
			if err := os.WriteFile(d.task.Path, s.Create(d.task.ID, h.work, time.Now()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.Prepare != nil {
		if err := s.Prepare(d.box); err != nil {
			t.Fatal(err)
		}
	}
	d.session.path = d.task.Path
	d.session.lines(t) // those of runs before
	path, err := harness.Find(s, filepath.Join(vars["PATH"][:strings.IndexByte(vars["PATH"], ':')], s.Binary),
		d.box.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	do := s.Live.Command(d.box, d.task)
	for i, arg := range do.Args {
		do.Args[i] = edit(arg)
	}
	d.cmd = exec.CommandContext(t.Context(), path, do.Args...)
	d.cmd.Dir, d.cmd.Env = h.work, append(h.env, do.Env...)
	d.spawn(t.TempDir())
	for _, line := range d.open() {
		d.write([]byte(edit(string(line))))
	}
	return d
}

// spawn starts the agent with a FIFO as its stdin and files as its output.
func (d *talk) spawn(dir string) {
	d.t.Helper()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	fifo := filepath.Join(dir, "input")
	must(syscall.Mkfifo(fifo, 0o600))
	var err error
	d.in, err = os.OpenFile(fifo, os.O_RDWR, 0)
	must(err)
	stdin, err := os.Open(fifo)
	must(err)
	d.stdout.path = filepath.Join(dir, "stdout")
	stdout, err := os.Create(d.stdout.path)
	must(err)
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	must(err)
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = stdin, stdout, stderr
	must(d.cmd.Start())
	must(errors.Join(stdin.Close(), stdout.Close(), stderr.Close()))
	d.t.Cleanup(func() {
		_ = d.in.Close() // may be closed
		if d.cmd.ProcessState == nil {
			_ = d.cmd.Process.Kill()
			_ = d.cmd.Wait() // killed
		}
	})
}

func (d *talk) open() [][]byte {
	if d.live.Open == nil {
		return nil
	}
	return d.live.Open(d.state, d.task, d.dir)
}

func (d *talk) write(line []byte) {
	d.t.Helper()
	if bytes.IndexByte(line, '\n') >= 0 || !json.Valid(line) {
		d.t.Fatalf("not one line of JSON: %.200s", line)
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		d.t.Fatal(err)
	}
}

// write2 writes two lines at once.
func (d *talk) write2(a, b []byte) {
	d.t.Helper()
	if _, err := d.in.Write(slices.Concat(a, []byte("\n"), b, []byte("\n"))); err != nil {
		d.t.Fatal(err)
	}
}

// follow reads what is new on stdout and in the session.
func (d *talk) follow() {
	d.t.Helper()
	for _, line := range d.stdout.lines(d.t) {
		h := d.live.Read(&d.state, line)
		d.events = append(d.events, h)
		d.accepted[h.Accepted], d.answered[h.Answered] = true, true
		d.dropped = append(d.dropped, h.Dropped...)
		if h.Again {
			d.again[h.Refused] = true
		}
		if h.Request != nil {
			d.write2(h.Request.Reply, h.Request.Reply) // as after a crash
		}
		if h.StopReason != "" {
			d.marks = append(d.marks, h.StopReason)
		}
		if h.OpenError != "" {
			d.t.Fatal(h.OpenError)
		}
	}
	if d.session.path == "" {
		if d.session.path = d.state.Session.Path; d.session.path == "" && d.spec.FindSession != nil {
			d.session.path = d.spec.FindSession(d.box, d.task.ID)
		}
	}
	for _, line := range d.session.lines(d.t) {
		found := d.live.Taken(line, d.spec.Dialect.Decode(line), d.sent)
		for _, i := range found {
			d.taken = append(d.taken, d.sent[i].Text)
		}
		for _, i := range slices.Backward(found) {
			d.sent = slices.Delete(d.sent, i, i+1)
		}
	}
}

// until waits for a condition.
func (d *talk) until(what string, ok func() bool) {
	d.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Minute); ; <-tick.C { // a real agent on a busy machine
		if d.follow(); ok() {
			return
		}
		if time.Now().After(end) {
			b, _ := os.ReadFile(d.stdout.path) // for the message
			errs, _ := os.ReadFile(filepath.Join(filepath.Dir(d.stdout.path), "stderr"))
			d.t.Fatalf("still waiting for: %s\nstate %+v\ntaken %q\nsent %+v\nstdout ends with\n%s\nstderr %s",
				what, d.state, d.taken, d.sent, b[max(0, len(b)-3000):], errs)
		}
	}
}

// put writes a message once the agent may get it, and waits until it is accepted. One that comes just when the turn
// ends is refused by codex, and put again, as a live run does.
func (d *talk) put(text string, images ...harness.Image) harness.Message {
	d.t.Helper()
	chat := uuid.NewString()
	for attempt := 0; ; attempt++ {
		d.until("ready", func() bool { return d.live.Ready(d.state) })
		m := harness.Message{ID: harness.MessageID(chat, attempt), Text: text, Images: images}
		d.sent, d.all = append(d.sent, m), append(d.all, m)
		d.write(d.live.Put(d.state, m))
		d.until(fmt.Sprintf("an answer to %.20q", text), func() bool { return d.accepted[m.ID] || d.again[m.ID] })
		if d.accepted[m.ID] {
			return m
		}
		d.sent = slices.DeleteFunc(d.sent, func(s harness.Message) bool { return s.ID == m.ID })
	}
}

// say puts a message and waits until it is taken in.
func (d *talk) say(text string) {
	d.t.Helper()
	d.put(text)
	d.until("taken in", func() bool { return len(d.sent) == 0 })
}

// idle waits until all is taken in and the agent is idle.
func (d *talk) idle() {
	d.t.Helper()
	d.until("idle", func() bool { return !d.state.Busy && len(d.sent) == 0 })
}

func (d *talk) id() string {
	d.ids++
	return fmt.Sprintf("test.%d", d.ids)
}

// interrupt ends the turn and waits until the next message may be put. It returns the messages that the agent dropped.
func (d *talk) interrupt() (dropped []harness.Message) {
	d.t.Helper()
	before := len(d.dropped)
	id := d.id()
	lines := d.live.Interrupt(d.state, id)
	if lines == nil {
		d.t.Fatal("no turn to interrupt")
	}
	for _, line := range lines {
		d.write(line)
	}
	d.until("interrupted", func() bool { return d.answered[id] && d.live.Ready(d.state) })
	for _, id := range d.dropped[before:] {
		i := slices.IndexFunc(d.sent, func(m harness.Message) bool { return m.ID == id })
		dropped = append(dropped, d.sent[i])
		d.sent = slices.Delete(d.sent, i, i+1)
	}
	return dropped
}

// barrier asks the barrier's question until its answer is a proof.
func (d *talk) barrier() {
	d.t.Helper()
	for range d.live.Rounds {
		id := d.id()
		d.write(d.live.Barrier(d.state, id))
		d.until("barrier", func() bool { return d.answered[id] })
	}
}

// requests waits until the model had n requests.
func (d *talk) requests(n int) {
	d.t.Helper()
	d.until(fmt.Sprintf("%d requests", n), func() bool { return len(d.model.Requests()) >= n })
}

// end closes the agent's input and returns its exit status.
func (d *talk) end() int {
	d.t.Helper()
	if err := d.in.Close(); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait() // the exit status counts, not the error
	d.follow()
	d.replays()
	if *record {
		d.record()
	}
	return d.cmd.ProcessState.ExitCode()
}

// record keeps the conversation as test data, without long texts and this machine's paths.
func (d *talk) record() {
	d.t.Helper()
	machine := regexp.MustCompile(`"(osVersion|serverName|installationId|userAgent|baseUrl|shell)":"[^"]*"`)
	long := regexp.MustCompile(`"(?:[^"\\]|\\.){100,}"`)
	dir := filepath.Join("..", "testdata", "live", strings.ReplaceAll(strings.TrimPrefix(d.t.Name(), "Test"), "/", "-"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		d.t.Fatal(err)
	}
	for name, path := range map[string]string{"stdout": d.stdout.path, "session.jsonl": d.session.path} {
		b, err := os.ReadFile(path)
		if err != nil {
			d.t.Fatal(err)
		}
		b = bytes.ReplaceAll(b, []byte(d.dir), []byte("/box/work"))
		b = bytes.ReplaceAll(b, []byte(d.box.Dir), []byte("/box/home"))
		b = bytes.ReplaceAll(b, []byte(strings.ReplaceAll(d.dir, "/", "-")), []byte("-box-work"))
		b = bytes.ReplaceAll(b, []byte(os.TempDir()), []byte("/box"))
		b = machine.ReplaceAll(b, []byte(`"$1":"omitted"`))
		b = long.ReplaceAll(b, []byte(`"[omitted]"`))
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			d.t.Fatal(err)
		}
	}
	b, err := json.MarshalIndent(d.all, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "messages.json"), append(b, '\n'), 0o644)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// replays fails the test unless the state that the whole stdout gives is the state that grew with it.
func (d *talk) replays() {
	d.t.Helper()
	b, err := os.ReadFile(d.stdout.path)
	if err != nil {
		d.t.Fatal(err)
	}
	var again harness.Talk
	for line := range bytes.Lines(b) {
		d.live.Read(&again, line)
	}
	if got, want := fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", d.state); got != want {
		d.t.Errorf("the stdout alone gives %s, want %s", got, want)
	}
}

// wantTaken compares the texts that the session has taken in, and looks for each of them, once and in this order, in
// the model's last request.
func (d *talk) wantTaken(want ...string) {
	d.t.Helper()
	if !slices.Equal(d.taken, want) {
		d.t.Errorf("taken in %q, want %q", d.taken, want)
	}
	requests := d.model.Requests()
	body, at := string(requests[len(requests)-1].Body), 0
	for _, text := range want {
		quoted, err := json.Marshal(text)
		if err != nil {
			d.t.Fatal(err)
		}
		text := strings.Trim(string(quoted), `"`) // claude-code adds words to one that a turn has taken in
		i := strings.Index(body, text)
		if i < at || strings.Count(body, text) != 1 {
			d.t.Errorf("%.60q: %d times, at %d behind %d", text, strings.Count(body, text), i, at)
		}
		at = i
	}
}

// gate is a shell command that works until the test opens it.
type gate struct{ dir string }

func (g gate) command() string {
	return fmt.Sprintf("touch %s/begun; until test -e %s/open; do sleep 0.05; done; echo through", g.dir, g.dir)
}

func (g gate) begun() bool {
	_, err := os.Stat(filepath.Join(g.dir, "begun"))
	return err == nil
}

func (g gate) open(t *testing.T) { write(t, g.dir, map[string]string{"open": ""}) }

// newGate returns a gate and the model's reply that runs it. It is open at the test's end: codex leaves the command
// of an interrupted turn running.
func newGate(t *testing.T, name string) (gate, model.Reply) {
	t.Helper()
	g := gate{t.TempDir()}
	t.Cleanup(func() { g.open(t) })
	tool := model.Tool{Name: "bash", Arguments: map[string]any{"command": g.command()}}
	switch name {
	case "codex":
		tool = model.Tool{
			Name: "exec_command", Arguments: map[string]any{"cmd": g.command(), "yield_time_ms": 30000},
		}
	case "claude-code":
		tool = model.Tool{Name: "Bash", Arguments: map[string]any{"command": g.command(), "description": "wait"}}
	}
	return g, model.Reply{Tools: []model.Tool{tool}}
}
