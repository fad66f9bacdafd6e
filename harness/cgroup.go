package harness

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Group is a cgroup (v2) of the agent's own. A nil Group is none, and all its methods do nothing.
type Group struct {
	path string
	dir  *os.File
}

// NewGroup makes a cgroup named name below the one that this process is in. An error says that it can't be had here: in most containers
// the hierarchy is read-only, and then the tree is found by its other traces.
func NewGroup(name string) (*Group, error) {
	parent, err := ownCgroup("")
	if err != nil {
		return nil, err
	}
	g := &Group{path: filepath.Join(parent, name)}
	if err := os.Mkdir(g.path, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // one that is there was made for the same run
		return nil, err
	}
	if g.dir, err = os.Open(g.path); err != nil {
		return nil, err
	}
	return g, nil
}

// Close releases the cgroup, and removes it where it is empty.
func (g *Group) Close() error {
	if g == nil {
		return nil
	}
	err := g.dir.Close()
	if len(g.members()) == 0 {
		err = errors.Join(err, os.Remove(g.path))
	}
	return err
}

func (g *Group) members() []int {
	if g == nil {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(g.path, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills all members, and those that they are about to start.
func (g *Group) kill() {
	if g != nil {
		_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0) // before Linux 5.14 there is none: each is killed by itself
	}
}

// ownCgroup is the folder of the cgroup that this process is in: of the v1 hierarchy with the controller, or of v2 where that is "".
func ownCgroup(controller string) (string, error) {
	var mount, root string
	err := eachLine("/proc/self/mountinfo", func(line string) {
		// 36 35 98:0 /root /mount/point opts … - type source superopts
		before, after, ok := strings.Cut(line, " - ")
		f, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(rest) < 3 || mount != "" {
			return
		}
		v1 := rest[0] == "cgroup" && controller != "" && has(rest[2], controller)
		if v1 || rest[0] == "cgroup2" && controller == "" {
			root, mount = f[3], f[4]
		}
	})
	if err != nil {
		return "", err
	}
	own := ""
	err = eachLine("/proc/self/cgroup", func(line string) {
		// 4:memory:/path, and for v2 0::/path
		f := strings.SplitN(line, ":", 3)
		if len(f) == 3 && (controller == "" && f[0] == "0" || controller != "" && has(f[1], controller)) {
			own = f[2]
		}
	})
	if err != nil {
		return "", err
	}
	if mount == "" || own == "" {
		return "", errors.New("no such cgroup hierarchy here")
	}
	// In a container the mount's root may be the container's cgroup, and own is told from there or from the host's root.
	own = strings.TrimPrefix(own, strings.TrimSuffix(root, "/"))
	path := filepath.Join(mount, own)
	if _, err := os.Stat(path); err != nil {
		path = mount
	}
	return path, nil
}

func has(list, word string) bool {
	for _, w := range strings.Split(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// OOMKills is how many processes the kernel has killed for memory in this process's cgroup and below it, as the cgroup's own counter says: v2's
// memory.events or v1's memory.oom_control. false where neither can be read.
func OOMKills() (int64, bool) {
	if dir, err := ownCgroup(""); err == nil {
		// The controller may only be enabled further up.
		for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			if n, ok := counter(filepath.Join(dir, "memory.events"), "oom_kill"); ok {
				return n, true
			}
		}
	}
	if dir, err := ownCgroup("memory"); err == nil {
		return counter(filepath.Join(dir, "memory.oom_control"), "oom_kill")
	}
	return 0, false
}

// counter is the value of a line "name value" in a file.
func counter(path, name string) (n int64, ok bool) {
	_ = eachLine(path, func(line string) { // no file, no counter
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == name {
			v, err := strconv.ParseInt(f[1], 10, 64)
			n, ok = v, err == nil
		}
	})
	return n, ok
}

func eachLine(path string, f func(string)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // read only: nothing to lose
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f(lines.Text())
	}
	return lines.Err()
}
