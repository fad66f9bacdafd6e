package surroundings_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// What the program does in place of its tests, where that is its first argument.
const (
	argShow  = "show"  // print its surroundings
	argLeave = "leave" // leave processes of each kind
	argStay  = "stay"  // the same, and wait
)

func TestMain(m *testing.M) {
	surroundings.Enter()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case argShow:
			show()
			return
		case argLeave, argStay:
			if err := leave(); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			if os.Args[1] == argStay {
				never := make(chan os.Signal, 1)
				signal.Notify(never, syscall.SIGUSR1)
				<-never
			}
			return
		}
	}
	os.Exit(m.Run())
}

func show() {
	for _, sig := range []syscall.Signal{1, 2, 3, 13, 15, 17, 22} {
		if signal.Ignored(sig) {
			fmt.Println("ignored:", sig)
		}
	}
	old := syscall.Umask(0)
	fmt.Printf("umask: %03o\n", old)
	for _, kv := range os.Environ() {
		fmt.Println(kv)
	}
}

// leave leaves a process that has cleared its environment and has a session of its own, an orphan, a child of it that
// ignores what can be ignored, and a file that can't be removed at once.
func leave() error {
	const orphan = `trap "" HUP INT TERM
(setsid env -i sleep 1000 & setsid sh -c 'trap "" HUP INT TERM; sleep 1000; :' &)
mkdir -p $TMPDIR/d/e; chmod 555 $TMPDIR/d $TMPDIR/d/e`
	if err := exec.Command("sh", "-c", orphan).Run(); err != nil {
		return err
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(os.Getenv("TMPDIR"))
	return nil
}

// program is this program as go test would start it, below a shell that runs setup first.
func program(t *testing.T, setup, arg string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", setup+"\n"+`"$0" "$@"; exit $?`, os.Args[0], arg)
	cmd.Env = outside()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// outside is the environment of a program that adds a guard of its own.
func outside() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TEST_SURROUNDINGS=") })
}

// The tests of a program run in the same surroundings, whatever it is started in.
func TestEnter(t *testing.T) {
	var first string
	for _, setup := range []string{
		"",
		"trap '' HUP INT QUIT PIPE TERM CHLD; umask 077",
		"umask 000; ulimit -n 256",
		"export LC_ALL=C LANG=de_DE.UTF-8 TZ=Pacific/Kiritimati TERM=xterm CI=1 NO_COLOR=1 XDG_DATA_HOME=/nowhere",
		"export ARBE_DATABASE=x ARBE_DATA=x ARBE_THREAD_ID=x DURABLE_STREAMS_SECRET=x DAYTONA_API_KEY=x GITHUB_TOKEN=x",
		"export GIT_DIR=/nowhere GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.autocrlf GIT_CONFIG_VALUE_0=true",
		"export HOME=/nowhere",
	} {
		out, err := program(t, setup, argShow).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", setup, err, out)
		}
		var lines []string
		for line := range strings.Lines(string(out)) {
			// These two are the program's own, or follow from the home folder of who starts it.
			switch name, _, _ := strings.Cut(line, "="); name {
			case "HOME", "TMPDIR":
				if _, err := os.Stat(strings.TrimSpace(line[len(name)+1:])); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %s is left: %v", setup, name, err)
				}
			case "GOPATH", "GOCACHE", "GOENV", "ARBE_CACHE":
			default:
				lines = append(lines, line)
			}
		}
		slices.Sort(lines)
		got := strings.Join(lines, "")
		if first == "" {
			first = got
		}
		if got != first || !strings.Contains(got, "umask: 022\n") || strings.Contains(got, "ignored") {
			t.Errorf("%s: the tests find\n%s\nwant\n%s", setup, got, first)
		}
	}
}

// What the tests have started ends with them, however they end.
func TestEnd(t *testing.T) {
	for name, end := range map[string]func(shell, relay, tests int) error{
		"KILL to the group":  func(shell, _, _ int) error { return syscall.Kill(-shell, syscall.SIGKILL) },
		"INT to the group":   func(shell, _, _ int) error { return syscall.Kill(-shell, syscall.SIGINT) },
		"TERM to the relay":  func(_, relay, _ int) error { return syscall.Kill(relay, syscall.SIGTERM) },
		"QUIT to the relay":  func(_, relay, _ int) error { return syscall.Kill(relay, syscall.SIGQUIT) },
		"KILL to its parent": func(shell, _, _ int) error { return syscall.Kill(shell, syscall.SIGKILL) },
		"KILL to the tests":  func(_, _, tests int) error { return syscall.Kill(tests, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := program(t, "", argStay)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			dir, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatalf("the tests print %q, %v", dir, err)
			}
			all := surroundings.Descendants(cmd.Process.Pid) // the relay, the guard, the tests, what they leave
			if len(all) < 6 {
				t.Fatalf("processes %v", all)
			}
			tests := slices.IndexFunc(all, func(st procfs.Stat) bool { // orphans are children of the guard, too
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", st.PID)) // none: it has ended
				return st.Parent == all[1].PID && strings.HasPrefix(string(line), os.Args[0]+"\x00")
			})
			if tests < 0 {
				t.Fatalf("no tests among %v", all)
			}
			if err := end(cmd.Process.Pid, all[0].PID, all[tests].PID); err != nil {
				t.Fatal(err)
			}
			gone(t, all)
			if _, err := os.Stat(strings.TrimSpace(dir)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder for temporary files is left: %v", err)
			}
			_ = cmd.Wait() // a signal ended it
		})
	}
}

// Nothing is left of the runners, agents and servers of real tests either, whatever of the chain from make to the tests
// is ended.
func TestFullEnd(t *testing.T) {
	status, err := built.Run("../../..", func(bin string) int {
		for name, end := range map[string]func(make int) error{
			"KILL to the group": func(make int) error { return syscall.Kill(-make, syscall.SIGKILL) },
			"INT to the group":  func(make int) error { return syscall.Kill(-make, syscall.SIGINT) },
			"TERM to make":      func(make int) error { return syscall.Kill(make, syscall.SIGTERM) },
		} {
			t.Run(name, func(t *testing.T) {
				makefile := filepath.Join(t.TempDir(), "Makefile")
				const recipe = "test:\n\t@:; exec go run -trimpath ./internal/test/report " +
					"'go test -json -count=1 -vet=off -trimpath -parallel 16 -run TestFaults ./internal/test/faults'\n"
				if err := os.WriteFile(makefile, []byte(recipe), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), "make", "-f", makefile)
				cmd.Dir, cmd.SysProcAttr = "../../..", &syscall.SysProcAttr{Setpgid: true}
				cmd.Env = append(outside(), built.Var+"="+bin)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				var all []procfs.Stat
				await(t, "runners", func() bool {
					all = surroundings.Descendants(cmd.Process.Pid)
					return len(all) > 30
				})
				if err := end(cmd.Process.Pid); err != nil {
					t.Fatal(err)
				}
				gone(t, all)
				_ = cmd.Wait() // a signal ended it
			})
		}
		return 0
	})
	if err != nil || status != 0 {
		t.Fatal(status, err)
	}
}

// Tests that end on their own leave nothing either, and their status is the program's.
func TestLeave(t *testing.T) {
	cmd := program(t, "", argLeave)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(strings.TrimSpace(string(out))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder for temporary files is left: %v", err)
	}
	cmd = program(t, "", "-test.run=(")
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("a program that fails ends with %v: %s", err, out)
	}
}

// gone waits until processes have ended.
func gone(t *testing.T, all []procfs.Stat) {
	t.Helper()
	await(t, "the end of all", func() bool {
		return !slices.ContainsFunc(all, func(was procfs.Stat) bool {
			st, err := procfs.Read(was.PID)
			return err == nil && st.Started == was.Started && st.Alive()
		})
	})
}

// await waits for something that must come.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(5 * time.Millisecond) { // between two looks
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
