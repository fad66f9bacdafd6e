// Package providers lists the kinds of boxes that arbe makes.
package providers

import (
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/daytona"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// All returns the kinds, the default one first.
func All() sandbox.Kinds { return sandbox.Kinds{local.Kind(), daytona.Kind()} }
