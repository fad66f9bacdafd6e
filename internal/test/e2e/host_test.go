package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

// launched is what arbe launch prints.
type launched struct {
	ThreadID, RunID, WorkDir, Resume string
	Sandbox                          struct{ Provider, Ref string }
	Process                          struct{ PID int }
}

// host is the host's side of launched runs: an environment for arbe with boxes of its own, and a model.
type host struct {
	*scene
	data string
}

// newHost prepares launches of pi into local boxes. Each box gets pi's configuration as files.
func newHost(t *testing.T, replies ...model.Reply) *host {
	t.Helper()
	return newHostOf(t, pi078, replies...)
}

// newHostOf is newHost for a version of pi.
func newHostOf(t *testing.T, version string, replies ...model.Reply) *host {
	t.Helper()
	s := newScene(t, version, replies...)
	h := &host{scene: s, data: filepath.Join(s.dir, "data")}
	if err := os.MkdirAll(h.data, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.try("sandbox", "list") })
	return h
}

// command is arbe as the host runs it, against the tests' thread server, with boxes of the host's own.
func (h *host) command(args ...string) *exec.Cmd {
	key, err := os.ReadFile(filepath.Join(os.Getenv("ARBE_DATA"), "secret"))
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), filepath.Join(bin, "arbe"), args...)
	for _, kv := range h.env {
		for _, name := range []string{
			"PATH", "ARBE_RUNNER_BIN", "WANTED", "FOR_SETUP", "DAYTONA_API_KEY",
			"DAYTONA_API_URL", "ARBE_BOX_STREAM_URL", "GITHUB_API_URL", "GITHUB_SERVER_URL", "GITHUB_TOKEN",
			"ARBE_DATABASE", "ARBE_SECRET_KEYS",
		} {
			if strings.HasPrefix(kv, name+"=") {
				cmd.Env = append(cmd.Env, kv)
			}
		}
	}
	cmd.Env = append(
		cmd.Env,
		"HOME="+h.dir,
		"ARBE_DATA="+h.data,
		"ARBE_STREAM_URL="+server,
		"DURABLE_STREAMS_SECRET="+strings.TrimSpace(string(key)),
		agents.KeyVar+"=scripted-key-0001",
		"ARBE_AUTHOR_ID=e2e",
	)
	return cmd
}

// try is what arbe prints.
func (h *host) try(args ...string) (string, error) {
	out, err := h.command(args...).CombinedOutput()
	return string(out), err
}

// launch launches pi, and returns when arbe has.
func (h *host) launch(args ...string) (l launched, took time.Duration) {
	h.t.Helper()
	cmd := h.command(h.with("launch", args)...)
	var said strings.Builder
	cmd.Stderr = &said
	began := time.Now()
	out, err := cmd.Output()
	took = time.Since(began)
	if err != nil {
		h.t.Fatalf("launch: %v\n%s%s", err, said.String(), out)
	}
	if err := json.Unmarshal(out, &l); err != nil {
		h.t.Fatalf("%v in %s", err, out)
	}
	h.t.Logf("launched in %v\n%s", took, said.String())
	h.thread = l.ThreadID
	return l, took
}

func (h *host) with(command string, args []string) []string {
	all := []string{command, "--sandbox", "local", "--env", agents.KeyVar}
	for _, name := range []string{"models.json", "settings.json"} {
		all = append(all, "--file", filepath.Join(h.dir, ".pi/agent", name)+":.pi/agent/"+name)
	}
	return append(all, args...)
}
