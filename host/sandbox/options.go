package sandbox

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options describe a new box.
type Options struct {
	Labels    map[string]string // arbe.house, arbe.thread, arbe.environment
	Env       map[string]string // of all commands in the box
	Repo      string            // org/repo or its address on GitHub; for a local box any address for git; "" for none
	Branch    string            // to check out: the remote's, or else a new one; "" for the default branch
	GitHub    string            // the server of org/repo; "" for the provider's
	Token     string            // for GitHub; no other server gets it
	Image     string            // of a registry, from which the provider builds the box; "" for Snapshot
	Snapshot  string            // the provider's image; "" for its default. It excludes Image and Resources
	Volumes   []Volume          // storage of the provider's
	Work      string            // the working directory, below the workspace; "" for one named as Repo is
	Target    string            // the provider's region
	AutoStop  time.Duration     // an idle box is stopped, and an ephemeral one deleted, after this time; 0: never
	Progress  func(step string) // receives each step; nil for none
	Ephemeral bool              // the box may be released when no run is open in it

	Resources Resources // only with Image: a snapshot has its own
}

// Volume is storage of a provider that outlives boxes, and where a box has it.
type Volume struct {
	Name string // or its id
	Path string // absolute in the box
}

// Step reports a step to Progress.
func (o Options) Step(what string) {
	if o.Progress != nil {
		o.Progress(what)
	}
}

// AllLabels returns the labels of a box with these options.
func (o Options) AllLabels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, o.Labels)
	if o.Ephemeral {
		labels[LabelEphemeral] = "true"
	}
	return labels
}

// Matches reports whether all of want are among labels.
func Matches(labels, want map[string]string) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(key string) bool {
		v, there := labels[key]
		return !there || v != want[key]
	})
}

// CheckWork returns o.Work, which must be below the workspace or "".
func (o Options) CheckWork() (string, error) {
	const workspace = "/workspace"
	if o.Work == "" {
		return "", nil
	}
	if _, err := ConfineFile(workspace, o.Work); err != nil || path.IsAbs(o.Work) {
		return "", &ConfinedError{Path: o.Work, Root: "the workspace"}
	}
	return o.Work, nil
}

// Resources are the size of a new box. A field that is 0 is the provider's default.
type Resources struct {
	CPU    int // cores
	Memory int // GiB
	Disk   int // GiB
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
