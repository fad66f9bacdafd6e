package bots_test

import (
	"os"
	"testing"

	"arbe.0sk.ar/runner/internal/test/fakeagent"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	if os.Getenv(fakeagent.PlanVar) != "" {
		os.Exit(fakeagent.Main())
	}
	surroundings.Enter()
	scene.Main(m)
}
