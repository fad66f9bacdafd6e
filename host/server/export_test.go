package server

import (
	"time"

	"arbe.0sk.ar/runner/host/log"
)

// patience is how long a test of this package waits for what a mistake keeps away.
const patience = 5 * time.Minute

// SetEngine makes Serve use an engine of a test's.
func SetEngine(c *Config, e log.Engine) { c.engine = e }
