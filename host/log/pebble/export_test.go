package pebble

import (
	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Internals that the external tests use.
var (
	OpenOn     = open
	CopyFolder = copyFolder
	Format     = format
)

// Flush writes to tables what is only in the write-ahead log and in memory.
func (e *Engine) Flush() error { return e.db.Flush() }

// LookAgain makes the next append ask the disk for its free space.
func (e *Engine) LookAgain() { e.space.looked.Store(0) }

// BoundFilters sets how many bytes all filters may take.
func (e *Engine) BoundFilters(most int) { e.filters.most = most }

// Filters returns the number of filters, and their bytes, counted afresh.
func (e *Engine) Filters() (count, bytes int) {
	e.filters.mu.Lock()
	defer e.filters.mu.Unlock()
	for at := e.filters.order.Front(); at != nil; at = at.Next() {
		f := at.Value.(*filter)
		count++
		bytes += f.keys.bytes() + filterOverhead + len(f.stream)
	}
	return count, bytes
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
