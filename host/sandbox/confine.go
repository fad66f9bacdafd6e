package sandbox

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// confine returns the absolute path of p, which must be relative to root, or absolute and below it. It compares the
// paths as text: a link in the box may lead elsewhere in the box.
func confine(root, p string) (string, error) {
	abs := path.Join(root, p)
	if path.IsAbs(p) {
		abs = path.Clean(p)
	}
	if strings.ContainsRune(p, 0) || abs != root && !strings.HasPrefix(abs, strings.TrimSuffix(root, "/")+"/") {
		return "", &ConfinedError{Path: p, Root: root}
	}
	return abs, nil
}

// confineFile is confine for the path of a file, which can't be root itself.
func confineFile(root, p string) (string, error) {
	abs, err := confine(root, p)
	if err == nil && (abs == root || strings.HasSuffix(p, "/")) {
		return "", &ConfinedError{Path: p, Root: root}
	}
	return abs, err
}

// check returns the command's directory in a box with a working directory, or why no box runs the command.
func (c Command) check(work string) (dir string, err error) {
	if len(c.Argv) == 0 {
		return "", errors.New("empty argv")
	}
	if err := checkEnv(c.Env); err != nil {
		return "", err
	}
	return confine(work, c.Dir)
}

// checkWork returns o.Work, which must be below the workspace or "".
func (o Options) checkWork() (string, error) {
	const workspace = "/workspace"
	if o.Work == "" {
		return "", nil
	}
	if _, err := confineFile(workspace, o.Work); err != nil || path.IsAbs(o.Work) {
		return "", &ConfinedError{Path: o.Work, Root: "the workspace"}
	}
	return o.Work, nil
}

// place returns the absolute path of f in a box with these folders.
func (f File) place(work, home string) (string, error) {
	if f.InHome {
		return confineFile(home, f.Path)
	}
	return confineFile(work, f.Path)
}

// Resources are the size of a new box. A field that is 0 is the provider's default.
type Resources struct {
	CPU    int // cores
	Memory int // GiB
	Disk   int // GiB
}

// checkResources refuses resources that Daytona would refuse.
func checkResources(r Resources, image string) error {
	switch {
	case r.CPU < 0 || r.Memory < 0 || r.Disk < 0:
		const want = "resources: %d cores, %d GiB of memory, %d GiB of disk: want no negative number"
		return fmt.Errorf(want, r.CPU, r.Memory, r.Disk)
	case r != Resources{} && image == "":
		return errors.New("resources: want an image: a snapshot has resources of its own, and Daytona's default is one")
	}
	return nil
}

// checkLocal refuses what a folder of this machine can't have.
func (o Options) checkLocal() error {
	switch {
	case o.Image != "":
		return errors.New("image: a local box has none: use --sandbox daytona")
	case o.Snapshot != "":
		return errors.New("snapshot: a local box has none: use --sandbox daytona")
	case o.Resources != (Resources{}):
		return errors.New("resources: a local box has no limits of its own")
	case len(o.Volumes) > 0:
		return errors.New("volumes: a local box has none: use --sandbox daytona")
	}
	return nil
}

// ParseResources reads resources as "cpu=2,memory=4,disk=10": cores and GiB, each optional. An empty text means the
// defaults.
func ParseResources(s string) (r Resources, err error) {
	if s == "" {
		return r, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		to := map[string]*int{"cpu": &r.CPU, "memory": &r.Memory, "disk": &r.Disk}[name]
		if err != nil || n < 1 || to == nil || *to != 0 {
			return r, fmt.Errorf("%q: want cpu=CORES, memory=GiB, disk=GiB, each once, with commas between", s)
		}
		*to = n
	}
	return r, nil
}
