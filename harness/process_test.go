package harness_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/outcome"
)

// start starts a shell script as an agent, with its output in a file.
func start(t *testing.T, script, stdin string) (*harness.Process, string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := harness.Start(harness.Command{
		Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: t.TempDir(), Stdin: stdin, Stdout: f, Stderr: f,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

// wait is how p ended, once it has.
func wait(p *harness.Process) outcome.Exit {
	<-p.Done()
	p.Release()
	return p.Exit()
}

func TestProcessExit(t *testing.T) {
	for script, want := range map[string]outcome.Exit{
		"exit 0": outcome.ExitCode(0), "exit 7": outcome.ExitCode(7), "kill -KILL $$": outcome.Signalled(9),
		"kill -TERM $$": outcome.Signalled(15), "exit 143": outcome.ExitCode(143),
	} {
		p, _ := start(t, script, "")
		if got := wait(p); got != want {
			t.Errorf("%s: %v, want %v", script, got, want)
		}
	}
}

func TestProcessStdin(t *testing.T) {
	for name, stdin := range map[string]string{
		"nothing": "", "some": "line\nno newline",
		"much": strings.Repeat("0123456789", 100_000),
	} {
		p, out := start(t, "cat", stdin)
		wait(p)
		if got, err := os.ReadFile(out); string(got) != stdin || err != nil {
			t.Errorf("%s: got %.20q, %v", name, got, err)
		}
	}
}

// A grandchild that keeps the output open does not keep Wait.
func TestProcessGrandchild(t *testing.T) {
	p, out := start(t, "setsid sleep 60 & echo $!; exit 3", "")
	if got := wait(p); got != outcome.ExitCode(3) {
		t.Errorf("got %v", got)
	}
	kill(t, out) // it is there: Wait has not waited for it
}

// kill ends the process whose pid is in a file.
func kill(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

func TestProcessStop(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		want         outcome.Exit
		signals      int
		grace        time.Duration
	}{
		{
			"goes", "trap 'exit 143' TERM; echo ready; while :; do sleep 0.05; done", outcome.ExitCode(143), 1,
			time.Hour,
		},
		{
			"will not go", "trap '' TERM; echo ready; while :; do sleep 0.05; done", outcome.Signalled(9), 2,
			500 * time.Millisecond,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, out := start(t, tt.script, "")
			for {
				if b, err := os.ReadFile(out); err == nil && len(b) > 0 {
					break
				}
				time.Sleep(5 * time.Millisecond) // until the trap is set
			}
			var sent []syscall.Signal
			p.Stop(
				t.Context(), syscall.SIGTERM, tt.grace, func(s syscall.Signal) { sent = append(sent, s) },
			)
			if got := wait(p); got != tt.want || len(sent) != tt.signals {
				t.Errorf("got %v after %v", got, sent)
			}
			p.Stop(
				t.Context(), syscall.SIGTERM, time.Second,
				func(s syscall.Signal) { t.Errorf("%v to a process that is gone", s) },
			)
		})
	}
}

// A tree is found by descent, by its mark and by its cgroup, and ends as a whole.
func TestTree(t *testing.T) {
	group, err := harness.NewGroup("arbe-test-" + strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Logf("no cgroup here: %v", err) // the other traces serve
	}
	for _, tt := range []struct {
		name  string
		child string // what the agent starts; it writes its pid to $out when its own child runs
		tree  func(agent int) harness.Tree
	}{
		{
			"by descent", "setsid sh -c 'trap \"\" TERM; sleep 60 & echo $$ >> $out; wait; wait' &",
			func(agent int) harness.Tree { return harness.Tree{Roots: []int{agent}} },
		},
		{
			"by its mark", "(setsid sh -c 'trap \"\" TERM; sleep 60 & echo $$ >> $out; wait; wait' &) ; sleep 60",
			func(int) harness.Tree { return harness.Tree{Mark: "tree-by-mark"} },
		},
		{
			"by its cgroup",
			"(env -i out=$out setsid sh -c 'trap \"\" TERM; sleep 60 & echo $$ >> $out; wait; wait' &) ; sleep 60",
			func(agent int) harness.Tree {
				return harness.Tree{Roots: []int{agent}, Group: group}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := tt.tree(0)
			if tree.Group == nil && tt.name == "by its cgroup" {
				t.Skip("a cgroup can't be made here")
			}
			dir := t.TempDir()
			out := filepath.Join(dir, "out")
			f, err := os.Create(filepath.Join(dir, "output"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			p, err := harness.Start(harness.Command{
				Path: "/bin/sh", Args: []string{"-c", tt.child + "\nwait"}, Dir: dir, Stdout: f, Stderr: f, Group: tree.Group,
				Env: []string{"PATH=" + os.Getenv("PATH"), "out=" + out, harness.MarkVar + "=" + tree.Mark},
			})
			if err != nil {
				t.Fatal(err)
			}
			for {
				if b, err := os.ReadFile(out); err == nil && strings.HasSuffix(string(b), "\n") {
					break
				}
				time.Sleep(5 * time.Millisecond) // until the child is there
			}
			tree = tt.tree(p.PID())
			// The agent, its child, and that one's. More may be on their way in or out: a subshell, the agent's sleep.
			const least = 3
			if members := tree.Members(); len(members) < least || tree.Roots != nil && members[0].PID != p.PID() {
				t.Errorf("found %v, and the agent is %d: want it, first, and %d more", members, p.PID(), least-1)
			}
			if found, left := tree.End(t.Context(), 100*time.Millisecond); found < least || left != 0 {
				t.Errorf("found %d and left %d", found, left)
			}
			wait(p)
			if n := len(tree.Members()); n != 0 {
				t.Errorf("%d live on", n)
			}
		})
	}
	if err := group.Close(); err != nil {
		t.Error(err)
	}
}

// An excepted process is no member of the tree, nor are its children, except those of a root.
func TestTreeExcepts(t *testing.T) {
	p, _ := start(t, "sleep 60", "")
	has := func(tree harness.Tree, pid int) bool {
		return slices.ContainsFunc(tree.Members(), func(m harness.Member) bool { return m.PID == pid })
	}
	tree := harness.Tree{Roots: []int{os.Getpid()}, Except: []int{os.Getpid()}}
	if !has(tree, p.PID()) || has(tree, os.Getpid()) {
		t.Error("the root's child is a member, and the root, which is excepted, is not")
	}
	tree.Except = append(tree.Except, p.PID())
	if has(tree, p.PID()) {
		t.Error("an excepted child is a member")
	}
	p.Stop(t.Context(), syscall.SIGKILL, time.Second, func(syscall.Signal) {})
	wait(p)
}

// A process that is not our child can be waited for. Its parent passes its exit on.
func TestAdopt(t *testing.T) {
	end := filepath.Join(t.TempDir(), "end")
	p, _ := start(t, "until test -e "+end+"; do sleep 0.05; done; exit 7", "")
	st, err := procfs.Read(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := harness.Adopt(p.PID(), st.Started+1, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another process with its pid was adopted: %v", err)
	}
	a, err := harness.Adopt(p.PID(), st.Started, func() (outcome.Exit, bool) { return outcome.ExitCode(7), true })
	if err != nil {
		t.Fatal(err)
	}
	if got := a.Exit(); got.Known {
		t.Errorf("ended with %v while it runs", got)
	}
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := wait(a); got != outcome.ExitCode(7) {
		t.Errorf("got %v", got)
	}
	wait(p)
	if _, err := harness.Adopt(p.PID(), st.Started, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that is gone was adopted: %v", err)
	}
}

// The agent dies before the runner when memory runs out.
func TestOOMScore(t *testing.T) {
	p, _ := start(t, "sleep 60", "")
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/oom_score_adj")
	if err != nil || strings.TrimSpace(string(b)) != "500" {
		t.Errorf("oom_score_adj is %s, %v", b, err)
	}
	p.Stop(t.Context(), syscall.SIGKILL, time.Second, func(syscall.Signal) {})
	wait(p)
	if harness.OOMKills() == nil {
		t.Log("this machine has no counter of processes killed for memory")
	}
}

func TestFind(t *testing.T) {
	var missing *harness.NotFoundError
	for _, bin := range []string{"/no/such/agent", "no-such-agent", t.TempDir()} {
		if path, err := harness.Find(pi(t), bin, os.Getenv); !errors.As(err, &missing) || missing.Spec.Package == "" {
			t.Errorf("%s: %s, %v", bin, path, err)
		}
	}
	if path, err := harness.Find(pi(t), "sh", os.Getenv); err != nil || !filepath.IsAbs(path) {
		t.Errorf("got %s, %v", path, err)
	}
	if _, err := harness.Lookup("emacs"); err == nil || !strings.Contains(err.Error(), "use one of ") {
		t.Errorf("got %v", err)
	}
}

// A program that can't be run is an error that names it, and leaves no process.
func TestStartRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(path, []byte("\x00no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := harness.Start(harness.Command{Path: path, Dir: filepath.Dir(path)})
	if !errors.Is(err, syscall.ENOEXEC) || strings.Contains(err.Error(), "exit status") ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}
