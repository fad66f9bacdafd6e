package provision

import (
	"os"
	"testing"

	"arbe.0sk.ar/runner/internal/test/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Enter()
	os.Exit(m.Run())
}
