package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Limit returns how many bytes of memory this process may use: the least of GOMEMLIMIT, the limits of its cgroup
// (version 1 or 2) and of the groups above it, and the machine's memory. Where none of them is known it is 1 GiB.
func Limit() int64 {
	return min(debug.SetMemoryLimit(-1), limitOf(os.DirFS("/")))
}

// limitOf is Limit without GOMEMLIMIT. root is the root of the file system.
func limitOf(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	at := func(file string, unit int64) {
		b, err := fs.ReadFile(root, file)
		if err != nil {
			return // no such group, or no such controller
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 &&
			n < math.MaxInt64/unit { // "max" is no limit
			limit = min(limit, n*unit)
		}
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // without it: the groups at the top
	groups = append(groups, "\n0::/\n0:memory:/\n"...)
	for line := range strings.Lines(string(groups)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		switch {
		case strings.Contains(","+controllers+",", ",memory,"):
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case id != "0" || controllers != "":
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			at(path.Join(dir, group, file), 1)
			if group == "/" {
				break
			}
		}
	}
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		_, rest, _ := strings.Cut(string(b), "MemTotal:")
		if f := strings.Fields(rest); len(f) > 0 {
			if kib, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				limit = min(limit, kib<<10)
			}
		}
	}
	if limit == math.MaxInt64 {
		return 1 << 30
	}
	return limit
}
