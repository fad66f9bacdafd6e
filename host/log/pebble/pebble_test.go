package pebble_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/enginetest"
)

// start makes an empty folder, in which it opens a store.
func start(t testing.TB) func() (log.Engine, error) {
	dir, logger := t.TempDir(), enginetest.Logger(t)
	return func() (log.Engine, error) { return pebble.Open(dir, logger) }
}

func TestEngine(t *testing.T) { enginetest.Suite(t, start) }

func TestLargeAppends(t *testing.T) { enginetest.Large(t, start) }

func BenchmarkGrowth(b *testing.B) { enginetest.Growth(b, start, 10_000_000) }
