package pebble_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// start makes an empty folder, in which it opens a store.
func start(t testing.TB) func() (engine.Engine, error) {
	dir, log := t.TempDir(), enginetest.Logger(t)
	return func() (engine.Engine, error) { return pebble.Open(dir, log) }
}

func TestEngine(t *testing.T) { enginetest.Suite(t, start) }

func BenchmarkGrowth(b *testing.B) { enginetest.Growth(b, start, 10_000_000) }
