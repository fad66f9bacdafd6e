package memory

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestLimit(t *testing.T) {
	const machine = "MemTotal:       2048 kB\nMemFree: 1 kB\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, 1 << 30},
		{"the machine", map[string]string{"proc/meminfo": machine}, 2 << 20},
		{"version 2", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1048576\n",
		}, 1 << 20},
		{"version 2 in a container", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "1048576\n",
		}, 1 << 20},
		{"version 1", map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "4:memory:/a\n1:cpu:/b\n0::/c\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1048576\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
		}, 1 << 20},
		{"version 1 in a container", map[string]string{
			"proc/self/cgroup":                           "4:cpu,memory:/docker/x\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n",
		}, 4096},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := limitOf(root); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	if got := Limit(); got < 1<<20 || got == math.MaxInt64 {
		t.Errorf("here it is %d", got)
	}
}
