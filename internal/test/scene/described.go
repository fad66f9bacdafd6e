package scene

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/internal/test/wire"
	"arbe.0sk.ar/runner/thread"
)

// foreign are the ids of entries that tests post in the name of another mirror.
var foreign = regexp.MustCompile(`^[fx][0-9]{1,2}$`)

// described holds each entry of the server's log, which has ended, against docs/entry.schema.json. Benchmarks post what
// they like.
func described(data string) (err error) {
	if f := flag.Lookup("test.bench"); f != nil && f.Value.String() != "" {
		return nil
	}
	dir := filepath.Join(data, "log")
	if _, err := os.Stat(dir); err != nil {
		return err // Open would make one
	}
	e, err := pebble.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	streams := log.New(e)
	defer func() { err = errors.Join(err, streams.Close()) }()
	ctx := context.Background()
	return streams.Threads(ctx, func(id string, _ uint64) error {
		v, err := streams.Stat(ctx, thread.StreamName(id))
		for after := uint64(0); err == nil && after < v.Tail(); {
			records, readErr := streams.Read(ctx, v, after, v.Tail(), 1<<20)
			if err = readErr; len(records) == 0 {
				break
			}
			for _, r := range records {
				after = r.Seq
				entry, parseErr := thread.ParseStored(r.Data)
				if parseErr == nil && foreign.MatchString(entry.ID) {
					continue
				}
				if bad := errors.Join(parseErr, wire.CheckEntry(r.Data)); bad != nil {
					return fmt.Errorf("thread %s: not as docs/entry.schema.json has it: %w\n%.2000s", id, bad, r.Data)
				}
			}
		}
		return err
	})
}
