package daemon

import "arbe.0sk.ar/runner/host/log"

// SetEngine makes Serve use an engine of a test's.
func SetEngine(c *Config, e log.Engine) { c.engine = e }

// Outlast is for tests.
var Outlast = outlast

// LeaveWithin is for tests.
const LeaveWithin = leaveWithin
