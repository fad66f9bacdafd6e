package harness

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

// Stat is what /proc says of a process.
type Stat struct {
	Parent  int
	State   byte          // 'Z' for one that has ended and was not waited for
	CPU     time.Duration // user and system time
	RSS     int64         // bytes in memory
	Started uint64        // clock ticks since boot: with the pid it names a process for good
}

// clockTick is the unit of times in /proc: 100 a second on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// ReadStat reads /proc/<pid>/stat; fs.ErrNotExist where there is no such process.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Stat{}, err
	}
	// The second field is the name in parentheses, and it may hold anything. f[0] is the third, as proc(5) counts them.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 22 {
		return Stat{}, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(f))
	}
	num := func(field int) int64 {
		n, convErr := strconv.ParseInt(f[field-3], 10, 64)
		err = errors.Join(err, convErr)
		return n
	}
	st := Stat{
		State:   f[0][0],
		Parent:  int(num(4)),
		CPU:     time.Duration(num(14)+num(15)) * clockTick,
		Started: uint64(num(22)),
		RSS:     num(24) * int64(os.Getpagesize()),
	}
	return st, err
}
