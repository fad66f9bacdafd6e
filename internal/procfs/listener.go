package procfs

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tcpListen is the state of a listening socket in /proc/net/tcp.
const tcpListen = "0A"

// Listener returns the pid of a process that listens on a TCP port of this machine; 0 if there is none whose open files
// this user may read.
func Listener(port int) (pid int) {
	sockets := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue // no such protocol here
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line) // number, local address, remote address, state, …, the inode is the tenth
			if len(f) < 10 || f[3] != tcpListen {
				continue
			}
			_, hex, _ := strings.Cut(f[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return 0
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is good
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && sockets[target] {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2]) // the pattern has digits there
			return pid
		}
	}
	return 0
}
