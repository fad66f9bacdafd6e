package jetstream_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// startEngine starts an empty server.
func startEngine(t testing.TB) func() (log.Engine, error) {
	config := configOf(t, start(t, nil))
	return func() (log.Engine, error) { return jetstream.Open(t.Context(), config) }
}

func TestEngine(t *testing.T) { enginetest.Suite(t, startEngine) }

func TestLargeAppends(t *testing.T) { enginetest.Large(t, startEngine) }

func BenchmarkGrowth(b *testing.B) { enginetest.Growth(b, startEngine, 1_000_000) }
