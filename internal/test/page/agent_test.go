package page_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

// harnesses are the agents that the page is tested with.
var harnesses = []string{"pi", "codex", "claude-code"}

// box is a home with a real agent in it, and a model server that follows a script.
type box struct {
	t     testing.TB
	h     *host
	agent agents.Agent
	model *model.Server
	home  string
	work  string
	args  []string // of the runner
}

// newBox makes a box for the newest proven version of a harness.
func newBox(t testing.TB, h *host, name string, replies ...model.Reply) *box {
	t.Helper()
	spec, err := harness.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	version := spec.Versions[0]
	if name == "pi" {
		version = "0.87.1"
	}
	b := &box{t: t, h: h, home: t.TempDir(), model: &model.Server{Script: model.Script{Replies: replies}}}
	if b.agent, err = agents.Find(name, version); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(b.model)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	if err := b.agent.Home(b.home, srv.URL, 50); err != nil {
		t.Fatal(err)
	}
	b.work = filepath.Join(b.home, "work")
	if err := os.Mkdir(b.work, 0o700); err != nil {
		t.Fatal(err)
	}
	return b
}

// write writes a file into the box's work folder.
func (b *box) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.work, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// start starts a run of the agent on a thread. The test fails where the run does.
func (b *box) start(id, run, prompt string) {
	b.t.Helper()
	args := append([]string{"run", "--harness", b.agent.Harness, "--cwd", b.work}, b.args...)
	cmd := exec.Command(filepath.Join(filepath.Dir(arbe), "arbe-pi-runner"), append(args, "--", prompt)...)
	cmd.Env = append(b.agent.Env(b.home), "PI_OFFLINE=1", "ARBE_THREAD_ID="+id, "ARBE_STREAM_URL="+b.h.url(),
		"ARBE_STREAM_TOKEN="+b.h.run("", "token", "mint", "--thread", id), "ARBE_RUN_ID="+run)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	b.t.Cleanup(func() {
		b.write("go", "") // the run ends where the test failed
		if err := <-ended; err != nil || b.t.Failed() {
			b.t.Errorf("arbe-pi-runner run: %v\n%s", err, log.String())
		}
	})
}

// shell is a call of a harness's tool that runs a command.
func shell(name, command string) model.Tool {
	switch name {
	case "codex":
		return model.Tool{Name: "exec_command", Arguments: map[string]any{"cmd": command, "yield_time_ms": 30000}}
	case "claude-code":
		return model.Tool{Name: "Bash", Arguments: map[string]any{"command": command, "description": "a test"}}
	}
	return model.Tool{Name: "bash", Arguments: map[string]any{"command": command}}
}
