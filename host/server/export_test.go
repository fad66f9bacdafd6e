package server

import "arbe.0sk.ar/runner/host/log/engine"

// SetEngine makes Serve use an engine of a test's.
func SetEngine(c *Config, e engine.Engine) { c.engine = e }
