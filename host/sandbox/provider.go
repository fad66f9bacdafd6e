package sandbox

import (
	"context"
	"strings"
)

// Provider makes and knows the boxes of one Kind. Its methods may be used concurrently.
type Provider interface {
	maker
	finder
	describer
}

// maker makes boxes, opens them again by their ids, and releases them.
type maker interface {
	// Create makes a box, with the repository in it. A Create that fails leaves no box.
	Create(ctx context.Context, o Options) (Sandbox, error)
	// Open returns the box with the id, running. It starts one that is Asleep, wakes one that is Frozen, and returns
	// ErrGone if there is no such box.
	Open(ctx context.Context, id string) (Sandbox, error)
	// Destroy releases the box with the id and all in it, without opening or starting it. A box that is gone already is
	// no error.
	Destroy(ctx context.Context, id string) error
}

// finder finds boxes without starting them, and without keeping them awake.
type finder interface {
	// Probe returns the state of the box with the id, and why in the provider's words. Only the provider's own answer
	// about this box makes it Gone. ErrForeign is of a box that another host alone can ask about.
	Probe(ctx context.Context, id string) (h Health, why string, err error)
	// Runs reports whether the process is alive in the box; with PID 0, whether the runner of the process's Run is, or,
	// without a Run, any runner. In a box that is Asleep nothing runs; of one that is Frozen it returns ErrFrozen, and
	// of one that is gone ErrGone, unless the process can be found without it.
	Runs(ctx context.Context, id string, p Process) (bool, error)
	// List returns the boxes that have all these labels.
	List(ctx context.Context, labels map[string]string) ([]Box, error)
}

// describer describes a provider and its boxes.
type describer interface {
	// Name is the provider's part of a Ref: the name of its Kind.
	Name() string
	Traits() Traits
	checker
}

type checker interface {
	// Check returns an error for options that no box of the provider can have. Create refuses them, too.
	Check(o Options) error
	// Works asks whether boxes can be made now, and returns what answers, with its version.
	Works(ctx context.Context) (version string, err error)
}

// Waker is a provider that freezes boxes without being asked, and can wake one without opening it.
type Waker interface {
	// Wake thaws the processes of a box that is Frozen. The provider may freeze it again later.
	Wake(ctx context.Context, id string) error
}

// Traits are properties of all boxes of a provider.
type Traits struct {
	// SameMachine: they are on this host's machine, so that nobody elsewhere can reach them.
	SameMachine bool `json:"sameMachine"`
	// Isolated: what runs in one reaches neither this host's files nor its processes.
	Isolated bool `json:"isolated"`
	// IdleTimer: the provider itself stops a box that nobody has called for Options.AutoStop.
	IdleTimer bool `json:"idleTimer"`
	// Wakes: Open starts a box that was stopped, or wakes one that was frozen.
	Wakes bool `json:"wakes"`
	// Survives: the files of a box survive its stop.
	Survives bool `json:"survivesStop"`
	// Relabels: the labels of a box can be changed.
	Relabels bool `json:"relabels"`
}

// String lists the traits that the boxes have, in words.
func (t Traits) String() string {
	var has []string
	for _, trait := range []struct {
		is    bool
		words string
	}{
		{t.SameMachine, "this machine"},
		{t.Isolated, "isolated"},
		{t.IdleTimer, "idle timer"},
		{t.Wakes, "wakes"},
		{t.Survives, "survives a stop"},
		{t.Relabels, "relabels"},
	} {
		if trait.is {
			has = append(has, trait.words)
		}
	}
	return strings.Join(has, ", ")
}
