package harness_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// noMainVar makes the test binary a program that forgets harness.Main: it starts its argument as an agent.
const noMainVar = "HARNESS_TEST_NO_MAIN"

func TestMain(m *testing.M) {
	if path := os.Getenv(noMainVar); path != "" {
		os.Exit(startWithoutMain(path))
	}
	harness.Main()
	surroundings.Enter()
	os.Exit(m.Run())
}

func startWithoutMain(path string) int {
	spawned := false
	_, err := harness.Start(harness.Command{
		Path: path, Dir: "/", Env: os.Environ(), Spawned: func(int) { spawned = true },
	})
	if errors.Is(err, harness.ErrNoMain) && !harness.Busy(err) && !spawned {
		return 0
	}
	return 1
}

// A program that forgets Main can start no agent: Start returns the reason at once, and starts no process.
func TestNoMain(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), noMainVar+"=/bin/true")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
