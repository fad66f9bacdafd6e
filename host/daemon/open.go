package daemon

import (
	"context"
	"log/slog"
	"time"

	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/log/pebble"
)

// NATS is the configuration of a cluster for the log.
type NATS = jetstream.Config

// Errors of a log that can't be opened.
type (
	// InUseError is the error of a data folder that another process uses.
	InUseError = pebble.BusyError
	// UnsafeError is the error of a cluster that can lose acknowledged entries.
	UnsafeError = jetstream.UnsafeError
)

// OpenLog opens the log in the folder dir on this machine's disk, and makes it where there is none. One process at a
// time can open it.
func OpenLog(dir string, logger *slog.Logger) (*log.Log, error) {
	e, err := pebble.Open(dir, logger)
	if err != nil {
		return nil, err
	}
	return log.New(e), nil
}

// open opens the configured log.
func (c Config) open(ctx context.Context) (*log.Log, error) {
	if c.engine != nil {
		return log.New(c.engine), nil
	}
	if c.NATS == nil {
		return OpenLog(c.Data.log(), c.Logger)
	}
	e, err := jetstream.Open(ctx, *c.NATS)
	if err != nil {
		return nil, err
	}
	return log.New(e), nil
}

// identifyTimeout bounds the read of the installation's id at the start.
const identifyTimeout = 5 * time.Second

// identify reads the installation's id, and makes it at the first start. On a full disk, and on a cluster without a
// majority, the server starts without it.
func identify(ctx context.Context, streams *log.Log) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	return streams.Installation(ctx)
}
