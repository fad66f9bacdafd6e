package skew_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// ofRun returns the keeper, the worker and the agent of a run, whose id no other one has.
func ofRun(run string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		args, argsErr := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, envErr := os.ReadFile(filepath.Join(dir, "environ"))
		if argsErr != nil || envErr != nil {
			continue // it has ended
		}
		runner := strings.HasSuffix(string(args), "\x00keep\x00"+run+"\x00") ||
			strings.HasSuffix(string(args), "\x00work\x00"+run+"\x00")
		if !runner && !strings.Contains("\x00"+string(env), "\x00ARBE_RUN_ID="+run+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killRun kills all processes of a run, so that none notices the end of another one.
func killRun(t *testing.T, run string) {
	t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		pids := ofRun(run)
		if len(pids) < 3 {
			t.Fatalf("run %s has the processes %v", run, pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, sig) // it may have ended
		}
	}
}
