package sandbox

import (
	"errors"
	"fmt"
)

// Resources are what a new box gets of a machine. A field that is 0 is the provider's default.
type Resources struct {
	CPU    int // cores
	Memory int // GiB
	Disk   int // GiB
}

// checkResources refuses what Daytona refuses, before a box is asked for: a snapshot has resources of its own.
func checkResources(r Resources, snapshot string) error {
	switch {
	case r.CPU < 0 || r.Memory < 0 || r.Disk < 0:
		return fmt.Errorf("resources: %d cores, %d GiB of memory, %d GiB of disk: want none below 0", r.CPU, r.Memory, r.Disk)
	case r != Resources{} && snapshot != "":
		return fmt.Errorf("resources and the snapshot %s exclude each other: a box of a snapshot has the snapshot's", snapshot)
	}
	return nil
}

// errNoResources refuses resources for a local box.
var errNoResources = errors.New("resources: a local box has no limits of its own")
