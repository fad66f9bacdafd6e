package store

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// format is the number of the format that this program writes.
//
//	1  records and keys of threads; not written down
//	2  streams of any name, states, values, controls, deleted streams
const format = 2

// ErrFormat says that the store was written by a later program.
var ErrFormat = errors.New("the log has a later format")

// migrate makes the store one of this program's format. Each step may be repeated: the number is written when it is done.
func migrate(db *pebble.DB) error {
	have := 1
	value, closer, err := db.Get([]byte(keyFormat))
	switch {
	case err == nil:
		have, err = strconv.Atoi(string(value))
		if err = errors.Join(err, closer.Close()); err != nil {
			return fmt.Errorf("the log's format: %w", err)
		}
	case !errors.Is(err, pebble.ErrNotFound):
		return err
	}
	if have > format {
		return fmt.Errorf("%w: %d; this program knows %d", ErrFormat, have, format)
	}
	if have == format {
		return nil
	}
	// What format 1 has is format 2, too: only the number tells an older program not to touch it.
	return db.Set([]byte(keyFormat), []byte(strconv.Itoa(format)), pebble.Sync)
}

// options are for many small values that are written in the order of their arrival and read in that of their streams.
func options(fs vfs.FS, space *space, log *slog.Logger) *pebble.Options {
	opts := &pebble.Options{
		FS:                 vfs.OnDiskFull(fs, space.full),
		FormatMajorVersion: pebble.FormatNewest,
		MemTableSize:       space.share(16, 1<<20, 32<<20),
		Logger:             pebbleLog{log},
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // "is this key new?" mostly costs no read
	}
	return opts
}

// pebbleLog passes on what the store has to say.
type pebbleLog struct{ log *slog.Logger }

func (p pebbleLog) Infof(format string, args ...any)  { p.log.Debug(fmt.Sprintf(format, args...)) }
func (p pebbleLog) Errorf(format string, args ...any) { p.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf is called where the store can't go on: a damaged file, a disk that fails. It must not return.
func (p pebbleLog) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	p.log.Error("the log can't go on", "error", msg)
	panic(msg)
}
