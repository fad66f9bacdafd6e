package daemon

import (
	"cmp"

	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/internal/openfiles"
)

// Limits bound what one client can take.
type Limits struct {
	Rate        server.Rate // of requests
	Connections int         // open at the same time; 0 is 20,000

	StreamBytes int64 // that one stream may hold; 0 is no limit
	TokenBytes  int64 // that the holder of one token may post within an hour; 0 is no limit
}

// otherFiles is how many files the process opens beside connections and the engine's tables: logs, certificates,
// profiles, backups, and the connections of a reconciler.
const otherFiles = 96

// MostConnections returns how many connections this process may have open, where each of them needs so many open files:
// Connections, or fewer where the limit of open files is lower. The rest of the files is for the log.
func (l Limits) MostConnections(each int) int { return l.most(openfiles.Limit(), each) }

// most is MostConnections of a process that may have so many files open.
func (l Limits) most(files, each int) int {
	return min(cmp.Or(l.Connections, 20_000), max(1, (files-pebble.MostFiles(files)-otherFiles)/each))
}
