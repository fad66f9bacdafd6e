package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/log/pebble"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
)

// BackupPath is where a server serves a backup of its log.
const BackupPath = "/v1/admin/backup"

// Errors of backups that callers handle differently.
var (
	ErrDamagedBackup = pebble.ErrBackup
	ErrLogExists     = pebble.ErrExists
	ErrBackupFormat  = pebble.ErrFormat
)

// Backup describes a backup.
type Backup = pebble.Backup

// backer is an engine that can copy itself while it is in use.
type backer interface {
	Backup(ctx context.Context, w io.Writer) error
}

// backup serves a copy of the log. One that breaks off can't be mistaken for a whole one: the connection breaks, and
// the manifest at its end is missing.
func (s *Server) backup(w http.ResponseWriter, r *http.Request) {
	s.core.AnswerError(w, r, s.sendBackup(w, r))
}

func (s *Server) sendBackup(w http.ResponseWriter, r *http.Request) error {
	authorization := r.Header.Get("Authorization")
	if _, err := s.core.Permit(r.Context(), authorization, token.SubjectAdmin, token.ScopeBackup); err != nil {
		return err
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		return request.Refuse(http.StatusMethodNotAllowed, "method", "want GET")
	}
	engine, ok := s.Log.Engine().(backer)
	if !ok {
		return request.Refuse(
			http.StatusNotImplemented,
			"no_backup",
			"the log is on a NATS cluster, which has a tool of its own for this: nats stream backup",
		)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.core.Closing, cancel)() // a server that stops does not wait for it
	began := time.Now()
	down := &download{w: w, rc: http.NewResponseController(w)}
	out := bufio.NewWriterSize(down, request.ReadChunk)
	err := engine.Backup(ctx, out)
	if err == nil {
		err = out.Flush()
	}
	switch {
	case err == nil:
		s.core.Metrics.BackedUp(time.Now())
		s.Logger.Info("backup sent", "bytes", down.sent, "ms", time.Since(began).Milliseconds())
		return nil
	case down.sent > 0:
		s.Logger.Warn("backup interrupted", "bytes", down.sent, "error", err)
		panic(http.ErrAbortHandler)
	case errors.Is(err, pebble.ErrBusy):
		return request.Refuse(http.StatusConflict, "busy", "another backup is under way")
	}
	return err
}

// download is a long answer. A client that does not accept a write in time is disconnected.
type download struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	sent int64
}

func (d *download) Write(b []byte) (int, error) {
	if d.sent == 0 {
		d.w.Header().Set("Content-Type", "application/x-tar")
		d.w.Header().Set("Cache-Control", "no-store")
	}
	_ = d.rc.SetWriteDeadline(time.Now().Add(httpd.WriteTimeout)) // only a test's has no deadlines
	d.sent += int64(len(b))
	return d.w.Write(b)
}

// CheckBackup reads a backup to its end and returns its description, or ErrDamagedBackup.
func CheckBackup(ctx context.Context, r io.Reader) (Backup, error) { return pebble.CheckBackup(ctx, r) }

// log returns the folder of the log.
func (d Data) log() string { return filepath.Join(string(d), "log") }

// index returns the folder of the index of threads, which is a cache of the log.
func (d Data) index() string { return filepath.Join(string(d), "index") }

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
