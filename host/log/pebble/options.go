package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"arbe.0sk.ar/runner/internal/openfiles"
)

// format is the number of the format that this program writes.
//
//	1  records and keys of threads; not written down
//	2  streams of any name, states, values, controls, deleted streams
const format = 2

// ErrFormat says that the store was written by a later program.
var ErrFormat = errors.New("the log has a later format")

// migrate makes the store one of this program's format. Each step may be repeated: the number is written when it is done.
func migrate(db *pebbledb.DB) error {
	have := 1
	value, closer, err := db.Get([]byte(keyFormat))
	switch {
	case err == nil:
		have, err = strconv.Atoi(string(value))
		if err = errors.Join(err, closer.Close()); err != nil {
			return fmt.Errorf("the log's format: %w", err)
		}
	case !errors.Is(err, pebbledb.ErrNotFound):
		return err
	}
	if have > format {
		return fmt.Errorf("%w: %d; this program knows %d", ErrFormat, have, format)
	}
	if have == format {
		return nil
	}
	// What format 1 has is format 2, too: only the number tells an older program not to touch it.
	return db.Set([]byte(keyFormat), []byte(strconv.Itoa(format)), pebbledb.Sync)
}

// Where so many appends wait for the disk, syncs are this far apart, so that each is for more of them.
const (
	many    = 32
	crowded = 500 * time.Microsecond
)

// memoryShare is a part of the memory that this process may use, of at least least bytes and at most most.
func memoryShare(part, least, most int64) int64 {
	return min(max(debug.SetMemoryLimit(-1)/part, least), most)
}

// options are for many small values that are written in the order of their arrival and read in that of their streams. What they cost as a store grows is
// BenchmarkGrowth's.
func options(fs vfs.FS, committing *atomic.Int32, space *space, f *failure) *pebbledb.Options {
	opts := &pebbledb.Options{
		FS:                          fs,
		FormatMajorVersion:          pebbledb.FormatNewest,
		MaxOpenFiles:                MostFiles(openfiles.Limit()),
		MemTableSize:                min(space.share(16, 1<<20, 64<<20), uint64(memoryShare(32, 1<<20, 64<<20))),
		MemTableStopWritesThreshold: 4,  // a flush that waits for its turn holds nobody up
		L0CompactionThreshold:       8,  // the more is merged at once, the less often each key is; who looks a key up seldom gets here
		L0StopWritesThreshold:       64, // a compaction that is late holds nobody up
		LBaseMaxBytes:               256 << 20,
		CacheSize:                   memoryShare(16, 8<<20, 128<<20), // of which the filters take 25 MB for 10 million records
		Logger:                      dbLog{f},
		EventListener:               &pebbledb.EventListener{DataCorruption: damage(f.log)},
	}
	opts.WALMinSyncInterval = func() time.Duration {
		if committing.Load() < many {
			return 0
		}
		return crowded
	}
	// Records come from the write-ahead log into files of their own, and mostly stay there while their keys are merged.
	opts.Experimental.ValueSeparationPolicy = func() pebbledb.ValueSeparationPolicy {
		return pebbledb.ValueSeparationPolicy{Enabled: true, MinimumSize: 256, MaxBlobReferenceDepth: 64, RewriteMinimumAge: 5 * time.Minute, TargetGarbageRatio: 0.5}
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // "is this key new?" mostly costs no read
		opts.TargetFileSizes[i] = 16 << 20
	}
	return opts
}

// damage says of each file that is damaged that it is, once. Who reads what it had is refused; by default the process would end.
func damage(log *slog.Logger) func(pebbledb.DataCorruptionInfo) {
	var said sync.Map
	return func(info pebbledb.DataCorruptionInfo) {
		if _, again := said.LoadOrStore(info.Path, true); !again {
			log.Error("a file of the log is damaged: what it has can't be read", "file", info.Path, "error", info.Details)
		}
	}
}

// dbLog passes on what the store has to say.
type dbLog struct{ failure *failure }

func (p dbLog) Infof(format string, args ...any) {
	p.failure.log.Debug(fmt.Sprintf(format, args...))
}

func (p dbLog) Errorf(format string, args ...any) {
	p.failure.log.Error(fmt.Sprintf(format, args...))
}

// Fatalf is called where the store can't go on. It must not return, and does not.
func (p dbLog) Fatalf(format string, args ...any) { p.failure.halt(fmt.Errorf(format, args...)) }
