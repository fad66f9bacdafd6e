// Package procfs reads and parses /proc/<pid>/stat. A Stat names a process for good: the kernel gives a pid away again,
// but never with the same start.
package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Stat is a process's line in /proc/<pid>/stat.
type Stat struct {
	PID     int
	Parent  int
	Session int
	State   byte          // 'Z' for one that has ended and was not waited for
	CPU     time.Duration // user and system time
	RSS     int64         // bytes in memory
	Started uint64        // clock ticks since boot
}

// Alive reports whether the process had not ended.
func (s Stat) Alive() bool { return s.State != 'Z' && s.State != 'X' }

// clockTick is the unit of times in /proc: 100 a second on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// Read reads the stat of a process; fs.ErrNotExist where there is no such process.
func Read(pid int) (Stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Stat{}, err
	}
	return Parse(string(b))
}

// Parse parses the content of /proc/<pid>/stat.
func Parse(line string) (Stat, error) {
	// The second field is the name in parentheses. It may hold anything, parentheses and spaces, too.
	pid, _, _ := strings.Cut(line, " ")
	f := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(f) < 22 {
		return Stat{}, fmt.Errorf("not the stat of a process: %.200q", line)
	}
	var failed error
	num := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		failed = errors.Join(failed, err)
		return n
	}
	field := func(n int) int64 { return num(f[n-3]) } // as proc(5) counts them: f[0] is the third
	st := Stat{
		PID:     int(num(pid)),
		State:   f[0][0],
		Parent:  int(field(4)),
		Session: int(field(6)),
		CPU:     time.Duration(field(14)+field(15)) * clockTick,
		Started: uint64(field(22)),
		RSS:     field(24) * int64(os.Getpagesize()),
	}
	if failed != nil {
		return Stat{}, fmt.Errorf("not the stat of a process: %.200q: %w", line, failed)
	}
	return st, nil
}
