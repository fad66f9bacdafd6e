package launch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/thread/client"
)

// shared is a provider with one box, in which the runner of another thread runs. Its own is never started.
type shared struct {
	oneBox
	runner bool // the answer is lost, but the runner is started
}

func (shared) Create(context.Context, sandbox.Options) (sandbox.Sandbox, error) { return room{}, nil }

func (s shared) Runs(_ context.Context, _ string, p sandbox.Process) (bool, error) {
	return p.PID == 0 && (p.Run == "" || p.Run == "other" || s.runner && p.Run == "r1"), nil
}

func (shared) Destroy(context.Context, string) error { return nil }

// room is a box that has the agent, and starts nothing.
type room struct{ sandbox.Sandbox }

func (room) Ref() sandbox.Ref                              { return sandbox.Ref{Provider: "cloud", ID: "b1"} }
func (room) WorkDir() string                               { return "/work" }
func (room) Upload(context.Context, ...sandbox.File) error { return nil }

func (room) Exec(context.Context, sandbox.Command) (sandbox.Result, error) {
	return sandbox.Result{Stdout: []byte("x86_64\n\n/usr/bin/pi\n")}, nil
}

func (room) Detach(context.Context, sandbox.Command, string) (sandbox.Process, error) {
	return sandbox.Process{}, errors.New("the answer is lost")
}

// A launch whose runner may not have started asks for its own one: another thread's may run in the same box.
func TestLostStartInASharedBox(t *testing.T) {
	program := filepath.Join(t.TempDir(), "runner")
	if err := os.WriteFile(program, []byte("runner"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, runs := range map[string]bool{"not started": false, "started": true} {
		t.Run(name, func(t *testing.T) {
			server, leases := fakethread.New(t, nil), fakethread.New(t, nil)
			l := launch.Launcher{
				Provider: shared{runner: runs}, Client: healthy(t, server), StreamURL: "http://threads.test",
				Boxes:  func(string) *client.Client { return leases.Client() },
				Agent:  launch.Agent{Program: "pi"},
				Tokens: func(string, string, string) (string, string, error) { return "w", "r", nil },
				Runner: func(string) (string, error) { return program, nil },
			}
			_, err := l.Launch(t.Context(), launch.Task{Thread: "t1", Run: "r1", Prompt: "go on", Harness: "pi"})
			if (err == nil) != runs {
				t.Errorf("the launch returned %v", err)
			}
			entries := server.Entries()
			last := string(entries[len(entries)-1].Payload)
			if failed := strings.Contains(last, `"status":"failed"`); failed == runs {
				t.Errorf("the thread ends with %s", last)
			}
		})
	}
}
