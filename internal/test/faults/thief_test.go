package faults_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"arbe.0sk.ar/runner/internal/test/program"
)

// thiefVar names the variable with the text that the thief looks for. A test binary whose TestMain sees it set is the
// thief.
const thiefVar = "FAULTS_THIEF"

// thief is an agent that wants the runner's token: it kills worker after worker and looks into each new one from its
// first moment on.
type thief struct {
	needle []byte
	keeper int
	out    *os.File
}

// kills is how many workers the thief kills.
const kills = 6

// thieve is the thief's life.
func thieve(needle string) int {
	out, err := os.OpenFile("stolen", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 1
	}
	worker := os.Getppid()
	t := thief{needle: []byte(needle), keeper: parent(worker), out: out}
	t.control()
	for range kills {
		_ = syscall.Kill(worker, syscall.SIGKILL) // it may be dead
		worker = t.next(worker)
		if worker == 0 {
			t.say("no worker follows")
			return 1
		}
		t.rob(worker)
	}
	t.say("through")
	return 0
}

func (t *thief) say(format string, args ...any) { fmt.Fprintf(t.out, format+"\n", args...) }

// control is a process that does not hide: the thief's ways work on it.
func (t *thief) control() {
	cmd := exec.Command("sleep", "60")
	cmd.Env = append(os.Environ(), "OPEN="+string(t.needle))
	if err := cmd.Start(); err != nil {
		t.say("control: %v", err)
		return
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	mem, maps := t.open(cmd.Process.Pid)
	if mem == nil || !t.search(mem, maps) {
		t.say("control: nothing found in an open process")
		return
	}
	t.say("control: robbed")
}

func parent(pid int) (ppid int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	ppid, _ = strconv.Atoi(f[1])
	return ppid
}

// next waits for the keeper's next worker.
func (t *thief) next(before int) int {
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		dirs, err := os.ReadDir("/proc")
		if err != nil {
			return 0
		}
		for i := len(dirs) - 1; i >= 0; i-- {
			pid, err := strconv.Atoi(dirs[i].Name())
			if err == nil && pid != before && pid != os.Getpid() && parent(pid) == t.keeper {
				return pid
			}
		}
	}
	return 0
}

// open opens a process's memory and its map; nil where it may not.
func (t *thief) open(pid int) (mem, maps *os.File) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, nil
	}
	if maps, err = os.Open(fmt.Sprintf("/proc/%d/maps", pid)); err != nil {
		return nil, nil
	}
	return mem, maps
}

// rob tries all ways into a worker while it starts, and then looks through the memory that it got hold of.
func (t *thief) rob(pid int) {
	var mem, maps *os.File
	for began := time.Now(); time.Since(began) < 300*time.Millisecond; {
		for _, name := range []string{"fd/3", "fd/4", "fd/5", "environ"} {
			if b, err := readSome(fmt.Sprintf("/proc/%d/%s", pid, name)); err == nil && bytes.Contains(b, t.needle) {
				t.say("stolen from %s of %d", name, pid)
				return
			}
		}
		t.ask(pid)
		if mem == nil {
			if mem, maps = t.open(pid); mem != nil {
				t.say("memory of %d is open", pid)
			}
		}
	}
	if mem != nil && t.search(mem, maps) {
		t.say("stolen from the memory of %d", pid)
	}
}

// readSome reads what there is of a file without waiting for more.
func readSome(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	n, err := f.ReadAt(b, 0)
	if n > 0 {
		err = nil
	}
	return b[:n], err
}

// ask takes the worker's socket and asks for the job itself.
func (t *thief) ask(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for inherited := 3; inherited <= 5; inherited++ {
		got, err := unix.PidfdGetfd(fd, inherited, 0)
		if err != nil {
			continue
		}
		t.say("file %d of %d is open", inherited, pid)
		if _, err := unix.GetsockoptInt(got, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
			_, _ = unix.Write(got, []byte("ready\n"))
			b := make([]byte, 1<<20)
			if n, err := unix.Read(got, b); err == nil && bytes.Contains(b[:n], t.needle) {
				t.say("stolen from the socket of %d", pid)
			}
		}
		_ = unix.Close(got)
	}
}

// search looks for the needle in all of a process's memory.
func (t *thief) search(mem, maps *os.File) bool {
	text, err := io.ReadAll(maps)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		var from, to int64
		var perms string
		_, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms)
		if err != nil || perms[0] != 'r' || to-from > 1<<30 {
			continue
		}
		b := make([]byte, min(to-from, 64<<20))
		n, _ := mem.ReadAt(b, from)
		if bytes.Contains(b[:n], t.needle) {
			return true
		}
	}
	return false
}

// The agent, as the runner's own user and not root, gets at the runner's token in no way: not in the moment in which
// it has killed a worker and the next one starts, either.
func TestThief(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || os.Getenv(rootVar) != "" {
		t.Skip("NOT RUN: only root can run the runner as another user")
	}
	s := newScene(t, "thief")
	self, err := os.Executable()
	s.try(err)
	thief, err := os.ReadFile(self)
	s.try(err)
	program.Write(t, s.path("thief"), thief)
	program.Write(t, s.path("spy"),
		fmt.Appendf(nil, "#!/bin/sh\ncd %s; exec env %s=%s ./thief\n", s.dir, thiefVar, s.server.Token))
	s.args = []string{"--agent-bin", s.path("spy")}
	user := s.nobody()
	cmd := s.command("run")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	out, err := cmd.CombinedOutput()
	b, readErr := os.ReadFile(s.path("stolen"))
	if readErr != nil {
		t.Fatalf("%v; the run: %v\n%s", readErr, err, out)
	}
	seen := string(b)
	if cmd.ProcessState == nil || !strings.Contains(seen, "through") || !strings.Contains(seen, "control: robbed") {
		t.Fatalf("%v\n%s\n%s", err, b, out)
	}
	if strings.Contains(string(b), "stolen") || strings.Contains(string(b), "is open") {
		t.Errorf("the thief got\n%s", b)
	}
}
