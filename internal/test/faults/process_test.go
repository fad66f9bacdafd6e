package faults_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// keeper returns the keeper's process id.
func (s *scene) keeper() int { return s.cmd.Process.Pid }

// worker returns the worker's process id, once there is one.
func (s *scene) worker() (pid int) {
	s.until("a worker", func() bool {
		pids := processes("work " + s.run)
		if len(pids) > 0 {
			pid = pids[0]
		}
		return pid != 0
	})
	return pid
}

// agent returns the agent's process id, once there is one.
func (s *scene) agent() (pid int) {
	s.until("an agent", func() bool {
		f, ok := s.fact("spawned")
		pid = f.PID
		return ok
	})
	return pid
}

// processes are those whose arguments end in tail, zombies not counted.
func processes(tail string) (pids []int) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	want := strings.ReplaceAll(tail, " ", "\x00") + "\x00"
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.HasSuffix(string(b), want) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// leftovers are the processes that came of the agent.
func (s *scene) leftovers() (pids []int) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		b, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil ||
			!bytes.Contains(b, []byte("\x00ARBE_RUN_ID="+s.run+"\x00")) &&
				!bytes.HasPrefix(b, []byte("ARBE_RUN_ID="+s.run+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// sweep ends what is left when a test is through.
func (s *scene) sweep() {
	for _, pid := range slices.Concat(processes("keep "+s.run), processes("work "+s.run), s.leftovers()) {
		kill(pid, syscall.SIGKILL)
	}
}

func kill(pid int, sig syscall.Signal) {
	if pid > 1 {
		_ = syscall.Kill(pid, sig) // gone is as good
	}
}
