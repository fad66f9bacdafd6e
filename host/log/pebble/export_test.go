package pebble

import (
	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// What tests of the Pebble store see of its inside.
var (
	OpenOn     = open
	CopyFolder = copyFolder
	Format     = format
)

// Flush puts what is only in the write-ahead log and in memory into tables.
func (p *Engine) Flush() error { return p.db.Flush() }

// LookAgain makes the next append ask the disk how much room there is.
func (p *Engine) LookAgain() { p.space.looked.Store(0) }

// RawPebble opens the folder as a store of no format.
func OpenRaw(dir string) (*pebbledb.DB, error) {
	return pebbledb.Open(dir, &pebbledb.Options{FS: vfs.Default, Logger: quiet{}})
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, _ ...any) {
	panic(format)
}
