package fakedaytona

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"arbe.0sk.ar/runner/internal/procfs"
)

// marker is in the environment of all that runs in a box.
const marker = "DAYTONA_SANDBOX_ID="

// pids are the processes of this machine, without ourselves.
func pids() []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		panic(err) // the pattern is good
	}
	var list []int
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil && pid != os.Getpid() {
			list = append(list, pid)
		}
	}
	return list
}

// patience is how long is waited for what takes its time on a busy machine.
const patience = 5 * time.Minute

// killBox kills the processes of a box, those that have its mark in their environment or stand in its directory, and
// reports whether all have ended.
func killBox(id, dir string) bool {
	for late := time.Now().Add(patience); time.Now().Before(late); {
		var found bool
		for _, pid := range pids() {
			proc := "/proc/" + strconv.Itoa(pid)
			env, _ := os.ReadFile(proc + "/environ") // it may be gone, or not ours
			cwd, _ := os.Readlink(proc + "/cwd")
			if slices.ContainsFunc(bytes.Split(env, []byte{0}),
				func(kv []byte) bool { return string(kv) == marker+id }) ||
				within(dir, cwd) {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return true
		}
		time.Sleep(2 * time.Millisecond) // for the kernel, which takes its time with a killed process
	}
	return false
}

// within reports whether path is dir, or below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// descendants are the processes below pid.
func descendants(pid int) []int {
	children := map[int][]int{}
	for _, p := range pids() {
		if st, err := procfs.Read(p); err == nil { // else it is gone
			children[st.Parent] = append(children[st.Parent], p)
		}
	}
	list := slices.Clone(children[pid])
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i]]...)
	}
	return list
}

// killTree kills a process, its group and all below it. They are stopped first, so that none can make another
// meanwhile.
func killTree(pid int) {
	still := map[int]bool{}
	for grew := true; grew; {
		grew = false
		for _, p := range append(descendants(pid), pid) {
			if !still[p] {
				_ = syscall.Kill(p, syscall.SIGSTOP) // it may have ended
				still[p], grew = true, true
			}
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for p := range still {
		_ = syscall.Kill(p, syscall.SIGKILL)
	}
}
