// Package skew_test plays two versions of both programs against each other: those of this tree, and those of another
// commit, by default of the last release. What one of them has written, begun or serves the other one reads, continues
// or uses, in both directions. Differences that are known stand in the list accepted, each with its reason; any other
// one is a fault.
package skew_test

import (
	"os"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// root is the repository.
const root = "../../../.."

// ours is the folder of this tree's programs.
var ours string

func TestMain(m *testing.M) {
	if os.Getenv(fakeagent.PlanVar) != "" {
		os.Exit(fakeagent.Main())
	}
	surroundings.Enter()
	built.Main(m, root, func(dir string) { ours = dir })
}

// patience is how long anything may take. What takes longer has failed.
const patience = 5 * time.Minute

// until waits for something that must come.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); {
		waited := time.Since(began)
		if waited > patience {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(min(max(5*time.Millisecond, waited/8), 250*time.Millisecond)) // between two looks
	}
}
