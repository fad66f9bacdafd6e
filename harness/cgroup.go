package harness

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Group is a cgroup (v2) for one agent. The methods of a nil Group do nothing.
type Group struct {
	path string
	dir  *os.File
}

// NewGroup makes a cgroup named name below the one of this process. It fails in most containers, whose hierarchy is
// read-only; a Tree then finds its processes by other traces.
func NewGroup(name string) (*Group, error) {
	parent, err := ownCgroup("")
	if err != nil {
		return nil, err
	}
	g := &Group{path: filepath.Join(parent, name)}
	if err := os.Mkdir(g.path, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // it may be of the same run
		return nil, err
	}
	if g.dir, err = os.Open(g.path); err != nil {
		return nil, err
	}
	return g, nil
}

// Close closes the cgroup, and removes it if it is empty.
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

// kill kills all members at once, so that none can start another.
func (g *Group) kill() {
	if g != nil { // the file is missing before Linux 5.14: Tree.End kills each process, too
		_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0)
	}
}

// ownCgroup is the folder of this process's cgroup: in the v1 hierarchy of the controller, or in v2 if that is "".
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
		return "", errors.New("cgroup hierarchy not mounted")
	}
	// In a container the mount's root may be the container's cgroup, and own relative to it or to the host's root.
	own = strings.TrimPrefix(own, strings.TrimSuffix(root, "/"))
	path := filepath.Join(mount, own)
	if _, err := os.Stat(path); err != nil {
		path = mount
	}
	return path, nil
}

// has reports whether a list has a word; its words are separated by commas.
func has(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

// OOMKills returns how many processes the kernel has killed for memory in this process's cgroup and below, from v2's
// memory.events or v1's memory.oom_control; nil if neither can be read.
func OOMKills() *int64 {
	if dir, err := ownCgroup(""); err == nil {
		// The controller may be enabled further up only.
		for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
			if n := counter(filepath.Join(dir, "memory.events"), "oom_kill"); n != nil {
				return n
			}
		}
	}
	if dir, err := ownCgroup("memory"); err == nil {
		return counter(filepath.Join(dir, "memory.oom_control"), "oom_kill")
	}
	return nil
}

// counter returns the value of the line "name value" in a file, nil without such a line.
func counter(path, name string) (n *int64) {
	_ = eachLine(path, func(line string) { // no file, no counter
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == name {
			if v, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				n = &v
			}
		}
	})
	return n
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
