package sandbox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

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

// ParseResources reads resources as "cpu=2,memory=4,disk=10": cores and GiB, each optional. "" is all defaults.
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
