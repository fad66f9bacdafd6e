package daemon

import "arbe.0sk.ar/runner/host/log"

// SetEngine makes Serve use an engine of a test's.
func SetEngine(c *Config, e log.Engine) { c.engine = e }
