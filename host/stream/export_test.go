package stream

import "arbe.0sk.ar/runner/host/stream/store"

// SetEngine makes Serve use an engine of a test's.
func SetEngine(c *Config, e store.Engine) { c.engine = e }
