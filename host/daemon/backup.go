package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"arbe.0sk.ar/runner/host/log/pebble"
)

// Errors of backups that callers handle differently.
var (
	ErrDamagedBackup = pebble.ErrBackup
	ErrLogExists     = pebble.ErrExists
)

// Formats are the numbers of the formats of a log in a data folder, and of its backups.
type Formats = pebble.Formats

// ThisFormats returns the formats that this program writes.
func ThisFormats() Formats { return pebble.ThisFormats() }

// Backup describes a backup.
type Backup = pebble.Backup

// CheckBackup reads a backup to its end and returns its description, or ErrDamagedBackup.
func CheckBackup(ctx context.Context, r io.Reader) (Backup, error) { return pebble.CheckBackup(ctx, r) }

// Backup writes a copy of the log to w, while no server uses the folder. fs.ErrNotExist: there is no log.
func (d Data) Backup(ctx context.Context, w io.Writer, logger *slog.Logger) error {
	if _, err := os.Stat(d.log()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no log in %s: %w", d, fs.ErrNotExist)
		}
		return err
	}
	p, err := pebble.Open(d.log(), logger)
	if err != nil {
		return err
	}
	return errors.Join(p.Backup(ctx, w), p.Close())
}

// Restore makes the log from a backup, as a whole or not at all, and deletes the index of an earlier one. ErrLogExists:
// there is a log.
func (d Data) Restore(ctx context.Context, r io.Reader) (Backup, error) {
	if _, err := os.Stat(d.log()); errors.Is(err, fs.ErrNotExist) {
		if err := os.RemoveAll(d.index()); err != nil {
			return Backup{}, err
		}
	}
	return pebble.Restore(ctx, r, d.log())
}
