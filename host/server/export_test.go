package server

import "time"

// patience is how long a test of this package waits for what a mistake keeps away.
const patience = 5 * time.Minute
