package recipe

import "slices"

// Runtime is a provider of boxes that environments may name.
type Runtime struct {
	Name    string
	Summary string   // what its boxes are: a folder of this machine
	Lacks   []string // keys of what none of its boxes has
	ByImage bool     // a box has resources of its own only with an image
}

// Runtimes are those that environments may name.
type Runtimes []Runtime

func (all Runtimes) names() (names []string) {
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

// checkRuntime refuses what no box of the environment's runtime has. One that names none is for any runtime, the most
// narrow one included.
func (d *decoder) checkRuntime(r *Recipe) {
	of := Runtime{ByImage: true}
	if i := slices.IndexFunc(d.runtimes, func(on Runtime) bool { return on.Name == r.Runtime }); i >= 0 {
		of = d.runtimes[i]
	}
	for _, name := range of.Lacks {
		if d.has(name) {
			d.refuseKey(name, "a %s box has none: it is %s", of.Name, of.Summary)
		}
	}
	if of.ByImage && d.has("resources") && !d.has("image") {
		d.refuseKey("resources", "want an image: a snapshot has resources of its own")
	}
}
