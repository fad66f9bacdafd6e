package scene

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/model"
)

// Launched is the output of arbe launch.
type Launched struct {
	ThreadID, RunID, WorkDir, Resume string
	Sandbox                          struct{ Provider, Ref string }
	Process                          struct{ PID int }
}

// Host is the host's side of launched runs: an environment for arbe with boxes of its own, and a model.
type Host struct {
	*Scene
	Data string
}

// NewHost prepares launches of pi into local boxes. Each box gets pi's configuration as files.
func NewHost(t *testing.T, replies ...model.Reply) *Host {
	t.Helper()
	return NewHostOf(t, Pi078, replies...)
}

// NewHostOf is newHost for a version of pi.
func NewHostOf(t *testing.T, version string, replies ...model.Reply) *Host {
	t.Helper()
	s := New(t, version, replies...)
	h := &Host{Scene: s, Data: filepath.Join(s.Dir, "data")}
	if err := os.MkdirAll(h.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Try("sandbox", "list") })
	return h
}

// Command is arbe as the host runs it, against the tests' thread server, with boxes of the host's own.
func (h *Host) Command(args ...string) *exec.Cmd {
	key, err := os.ReadFile(filepath.Join(os.Getenv("ARBE_DATA"), "secret"))
	if err != nil {
		h.T.Fatal(err)
	}
	cmd := exec.CommandContext(h.T.Context(), filepath.Join(Bin, "arbe"), args...)
	for _, kv := range h.Env {
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
		"HOME="+h.Dir,
		"ARBE_DATA="+h.Data,
		"ARBE_STREAM_URL="+Server,
		"DURABLE_STREAMS_SECRET="+strings.TrimSpace(string(key)),
		agents.KeyVar+"=scripted-key-0001",
		"ARBE_AUTHOR_ID=e2e",
	)
	return cmd
}

// Try returns the output of arbe.
func (h *Host) Try(args ...string) (string, error) {
	out, err := h.Command(args...).CombinedOutput()
	return string(out), err
}

// Launch launches pi, and returns when arbe has.
func (h *Host) Launch(args ...string) (l Launched, took time.Duration) {
	h.T.Helper()
	cmd := h.Command(h.With("launch", args)...)
	var said strings.Builder
	cmd.Stderr = &said
	began := time.Now()
	out, err := cmd.Output()
	took = time.Since(began)
	if err != nil {
		h.T.Fatalf("launch: %v\n%s%s", err, said.String(), out)
	}
	if err := json.Unmarshal(out, &l); err != nil {
		h.T.Fatalf("%v in %s", err, out)
	}
	h.T.Logf("launched in %v\n%s", took, said.String())
	h.Thread = l.ThreadID
	return l, took
}

func (h *Host) With(command string, args []string) []string {
	all := []string{command, "--sandbox", "local", "--env", agents.KeyVar}
	for _, name := range []string{"models.json", "settings.json"} {
		all = append(all, "--file", filepath.Join(h.Dir, ".pi/agent", name)+":.pi/agent/"+name)
	}
	return append(all, args...)
}

// BoxOfPi is the config of an environment whose boxes have the scene's pi.
func (h *Host) BoxOfPi() string {
	bin := h.Agent.Bin()
	return string(thread.Marshal(map[string]any{"files": []map[string]string{{
		"path": "~/.npm-global/bin/pi", "mode": "0755",
		"content": "#!/bin/sh\nPATH=" + bin + ":$PATH exec " + filepath.Join(bin, "pi") + ` "$@"` + "\n",
	}}}))
}

// Write writes a file of a test.
func Write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Steps are the steps on a thread: the last part of the type, the name, and the error where there is one.
func (h *Host) Steps() (all []string) {
	h.T.Helper()
	for _, e := range h.Entries() {
		p := Payload[thread.SetupStep](h.T, e)
		kind, is := strings.CutPrefix(p.Type, "signal.setup.")
		if !is || kind == thread.StepWait {
			continue
		}
		if p.DurationMs < 0 {
			h.T.Errorf("the step %s took %d ms", p.Name, p.DurationMs)
		}
		step := kind + " " + p.Name
		if p.Error != "" {
			step += ": " + p.Error
		}
		all = append(all, step)
	}
	return all
}
