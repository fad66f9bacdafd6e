package fakeagent_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	if os.Getenv(fakeagent.PlanVar) != "" {
		os.Exit(fakeagent.Main())
	}
	surroundings.Enter()
	os.Exit(m.Run())
}

// A fake that waits sleeps in the kernel until its file is there: a runner that measures its agent's processor time
// must find none. A shell that looks ten times as seldom as the fake once did is the control.
func TestWaitingIsIdle(t *testing.T) {
	for name, test := range map[string]struct{ plan, input string }{
		"wait": {plan: "print here\nwait go\nprint on"},
		"hold": {
			plan:  "print here\nconverse messages",
			input: `{"type":"prompt","message":"hold go"}` + "\n",
		},
		"deaf": {
			plan:  "print here\nconverse messages",
			input: `{"type":"prompt","message":"deaf go"}` + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "plan"), test.plan)
			args := []string{"--session", filepath.Join(dir, "session")}
			if test.input != "" {
				args = append(args, "--mode", "rpc")
			}
			agent, in, out := start(t, dir, os.Args[0], args...)
			if _, err := io.WriteString(in, test.input); err != nil {
				t.Fatal(err)
			}
			if test.input == "" {
				in.Close() // the prompt: none
			}
			if line, err := out.ReadString('\n'); line != "here\n" {
				t.Fatalf("the agent prints %q, %v", line, err)
			}
			control, _, _ := start(t, dir, "sh", "-c", "while :; do sleep 0.05; done")
			const looks = 20
			switched(t, control.Process.Pid, looks) // the agent has come to its wait
			before := switches(t, agent.Process.Pid)
			switched(t, control.Process.Pid, looks)
			if n := switches(t, agent.Process.Pid) - before; n > looks/2 {
				t.Errorf("the agent woke %d times while the control woke %d times", n, looks)
			}
			write(t, filepath.Join(dir, "go"), "")
			if _, err := out.ReadString('\n'); err != nil {
				t.Errorf("the agent does not go on: %v", err)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts a program in dir that ends with the test.
func start(t *testing.T, dir, name string, args ...string) (cmd *exec.Cmd, in io.WriteCloser, out *bufio.Reader) {
	t.Helper()
	cmd = exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), fakeagent.PlanVar+"="+filepath.Join(dir, "plan"))
	in, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if inErr != nil || outErr != nil {
		t.Fatal(inErr, outErr)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	return cmd, in, bufio.NewReader(stdout)
}

// switched waits until a process has slept n times more.
func switched(t *testing.T, pid, n int) {
	t.Helper()
	for before := switches(t, pid); switches(t, pid)-before < n; {
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}

// switches returns how often the threads of a process have gone to sleep.
func switches(t *testing.T, pid int) (all int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range bytes.Lines(b) {
			if s, ok := strings.CutPrefix(string(line), "voluntary_ctxt_switches:"); ok {
				n := 0
				if _, err := fmt.Sscan(s, &n); err != nil {
					t.Fatal(err)
				}
				all += n
			}
		}
	}
	return all
}
