package control_test

import (
	"os"
	"os/exec"
	"testing"

	"arbe.0sk.ar/runner/internal/test/postgres"
)

// All tests of this package on the oldest Postgres that the schema can do with.
func TestFullOldest(t *testing.T) {
	p := must(postgres.FindVersion(postgres.Oldest))(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.skip=^TestFull", "-test.shuffle=on", "-test.v=false")
	cmd.Env = append(os.Environ(), postgres.Var+"="+p.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
