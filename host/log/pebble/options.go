package pebble

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"arbe.0sk.ar/runner/internal/format"
	"arbe.0sk.ar/runner/internal/openfiles"
)

// logFormat is the number of the log's format that this program writes.
//
//	1  records and keys of threads; the number is not stored
//	2  streams of any name, states, values, controls, deleted streams
const logFormat = 2

// storeFormat is the number of Pebble's own format that this program writes. After an update of the library it stays
// for one release, so that the release before opens the store.
const storeFormat = pebbledb.FormatValueSeparation

// storeMarker is the name under which Pebble keeps the number of its format.
const storeMarker = "format-version"

// checkStore returns format.ErrLater for a store whose files are of a later Pebble. The folder may be missing.
func checkStore(fs vfs.FS, dir string) error {
	value, err := atomicfs.ReadMarker(fs, dir, storeMarker)
	if errors.Is(err, iofs.ErrNotExist) || err == nil && value == "" {
		return nil
	}
	has, perr := strconv.Atoi(value)
	if err = errors.Join(err, perr); err != nil {
		return fmt.Errorf("read the store's format: %w", err)
	}
	return format.Check("its Pebble store", has, int(pebbledb.FormatNewest))
}

// Formats are the numbers of the formats that this program writes. What a later program has written it refuses.
type Formats struct {
	Log    int `json:"log"`    // the keys and values of the store
	Store  int `json:"store"`  // the files of the store, which are Pebble's
	Backup int `json:"backup"` // the archive of a backup
}

// ThisFormats returns this program's formats.
func ThisFormats() Formats {
	return Formats{Log: logFormat, Store: int(storeFormat), Backup: archiveFormat}
}

// migrate converts the store to this program's format. A step may be repeated: the number is stored when it is done.
func migrate(db *pebbledb.DB) error {
	have := 1
	value, closer, err := db.Get([]byte(keyFormat))
	switch {
	case err == nil:
		have, err = strconv.Atoi(string(value))
		if err = errors.Join(err, closer.Close()); err != nil {
			return fmt.Errorf("read the log's format: %w", err)
		}
	case !errors.Is(err, pebbledb.ErrNotFound):
		return err
	}
	if err := format.Check("it", have, logFormat); err != nil || have == logFormat {
		return err
	}
	// Format 1 is valid format 2. Only the number keeps an older program from opening the store.
	return db.Set([]byte(keyFormat), []byte(strconv.Itoa(logFormat)), pebbledb.Sync)
}

// If at least manyAppends wait for the disk, syncs are syncInterval apart, so that each is for more of them.
const (
	manyAppends  = 32
	syncInterval = 500 * time.Microsecond
)

// memoryShare is one part-th of the memory that this process may use (GOMEMLIMIT), but at least least bytes and at most
// most.
func memoryShare(part, least, most int64) int64 {
	return min(max(debug.SetMemoryLimit(-1)/part, least), most)
}

// options suit many small values that are written in order of arrival and read in order of their streams.
// BenchmarkGrowth measures their cost as a store grows.
func options(fs vfs.FS, committing *atomic.Int32, space *space, f *failure) *pebbledb.Options {
	opts := &pebbledb.Options{
		FS:                          fs,
		FormatMajorVersion:          storeFormat,
		MaxOpenFiles:                MostFiles(openfiles.Limit()),
		MemTableSize:                min(space.share(16, 1<<20, 64<<20), uint64(memoryShare(32, 1<<20, 64<<20))),
		MemTableStopWritesThreshold: 4,  // a late flush blocks no writer
		L0CompactionThreshold:       8,  // larger merges are fewer merges of each key; look-ups rarely read level 0
		L0StopWritesThreshold:       64, // a late compaction blocks no writer
		LBaseMaxBytes:               256 << 20,
		// the filters of 10 million records take 25 MB of it
		CacheSize:     memoryShare(16, 8<<20, 128<<20),
		Logger:        dbLog{f},
		EventListener: &pebbledb.EventListener{DataCorruption: damage(f.log)},
	}
	opts.WALMinSyncInterval = func() time.Duration {
		if committing.Load() < manyAppends {
			return 0
		}
		return syncInterval
	}
	// Records move from the write-ahead log into files of values, and mostly stay there while their keys are merged.
	opts.Experimental.ValueSeparationPolicy = func() pebbledb.ValueSeparationPolicy {
		return pebbledb.ValueSeparationPolicy{
			Enabled: true, MinimumSize: 256, MaxBlobReferenceDepth: 64, RewriteMinimumAge: 5 * time.Minute,
			TargetGarbageRatio: 0.5,
		}
	}
	for i := range opts.Levels {
		opts.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // to find that a key is new mostly takes no read
		opts.TargetFileSizes[i] = 16 << 20
	}
	return opts
}

// damage logs each damaged file once. A read of its records fails; by default Pebble would end the process.
func damage(log *slog.Logger) func(pebbledb.DataCorruptionInfo) {
	var logged sync.Map
	return func(info pebbledb.DataCorruptionInfo) {
		if _, again := logged.LoadOrStore(info.Path, true); !again {
			log.Error("a file of the log is damaged: its records can't be read", "file", info.Path, "error",
				info.Details)
		}
	}
}

// dbLog writes Pebble's log messages to the engine's log.
type dbLog struct{ failure *failure }

func (p dbLog) Infof(format string, args ...any) {
	p.failure.log.Debug(fmt.Sprintf(format, args...))
}

func (p dbLog) Errorf(format string, args ...any) {
	p.failure.log.Error(fmt.Sprintf(format, args...))
}

// Fatalf is Pebble's last call when it can't continue. It must not return.
func (p dbLog) Fatalf(format string, args ...any) { p.failure.halt(fmt.Errorf(format, args...)) }

// MostFiles returns how many files the engine opens at most in a process that may open files files: a quarter of them,
// but at least 74 and at most 1000.
func MostFiles(files int) int { return min(max(files/4, leastFiles), 1000) }

// leastFiles is the least that Pebble works with: 64 tables, and 10 files of its own.
const leastFiles = 74
