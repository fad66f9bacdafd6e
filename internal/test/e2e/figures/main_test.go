package figures_test

import (
	"os"
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"

	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	if how := os.Getenv(loadVar); how != "" {
		os.Exit(loadAgent(how))
	}
	surroundings.Enter()
	scene.Main(m)
}
