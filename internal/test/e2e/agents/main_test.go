package agents_test

import (
	"testing"

	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Enter()
	scene.Main(m)
}
