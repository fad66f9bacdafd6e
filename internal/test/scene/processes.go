package scene

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// RunnerPIDs are the processes of a runner: the one that was started, and its worker.
func RunnerPIDs(pid int) []int {
	pids := []int{pid}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // each thread has its own
	if err != nil {
		return pids
	}
	var children []string
	for _, path := range lists {
		if b, err := os.ReadFile(path); err == nil {
			children = append(children, strings.Fields(string(b))...)
		}
	}
	for _, field := range children {
		cmdline, err := os.ReadFile("/proc/" + field + "/cmdline")
		if child, convErr := strconv.Atoi(field); err == nil && convErr == nil &&
			bytes.Contains(cmdline, []byte("\x00work\x00")) {
			pids = append(pids, child)
		}
	}
	return pids
}
