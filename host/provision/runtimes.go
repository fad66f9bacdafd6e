package provision

import (
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/sandbox"
)

// Runtimes returns the runtimes that environments may name, one for each kind of boxes.
func Runtimes(kinds sandbox.Kinds) (all recipe.Runtimes) {
	for _, k := range kinds {
		r := recipe.Runtime{Name: k.Name, Summary: k.Summary, ByImage: k.ByImage && k.Has(sandbox.OptionResources)}
		for _, o := range sandbox.AllOptions() {
			if !k.Has(o) {
				r.Lacks = append(r.Lacks, string(o))
			}
		}
		all = append(all, r)
	}
	return all
}
