package pebble

import (
	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Internals that the external tests use.
var (
	OpenOn      = open
	CopyFolder  = copyFolder
	Format      = logFormat
	StoreFormat = storeFormat
	StoreMarker = storeMarker
)

// Flush writes to tables what is only in the write-ahead log and in memory.
func (e *Engine) Flush() error { return e.db.Flush() }

// LookAgain makes the next append ask the disk for its free space.
func (e *Engine) LookAgain() { e.space.looked.Store(0) }

// BoundFilters sets how many bytes all filters may take.
func (e *Engine) BoundFilters(most int) { e.filters.Most = most }

// Filters returns the number of filters, and their bytes, counted afresh.
func (e *Engine) Filters() (count, bytes int) {
	var streams []string
	e.filters.DropIf(func(stream string) bool {
		streams = append(streams, stream)
		return false
	})
	for _, stream := range streams {
		keys, _ := e.filters.Get(stream)
		bytes += keys.bytes() + filterOverhead + len(stream)
	}
	return len(streams), bytes
}

// OpenRaw opens the folder as a Pebble store, whatever it holds.
func OpenRaw(dir string) (*pebbledb.DB, error) {
	return pebbledb.Open(dir, &pebbledb.Options{FS: vfs.Default, Logger: quiet{}})
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, _ ...any) {
	panic(format)
}
