// Package dispatch_test has bots answer with the built program while hosts die: arbe serve with a real Postgres, three
// processes of arbe dispatch, each behind a front of its own, and a scripted model.
package dispatch_test

import (
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/built"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

var bin string

func TestMain(m *testing.M) {
	surroundings.Enter()
	built.Main(m, "../../../..", func(dir string) { bin = dir })
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
		time.Sleep(min(max(5*time.Millisecond, waited/8), 500*time.Millisecond)) // between two looks
	}
}
