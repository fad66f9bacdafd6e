package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
)

// BackupPath is where a server serves a backup of its log.
const BackupPath = "/v1/admin/backup"

// backer is an engine that can copy itself while it is in use.
type backer interface {
	// Backup returns engine.ErrBusy while another backup is running.
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
	source, ok := s.Log.Engine().(backer)
	if !ok {
		return request.Refuse(http.StatusNotImplemented, "no_backup",
			"the log is on a NATS cluster, which has a tool of its own for this: nats stream backup")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.core.Closing, cancel)() // a server that stops does not wait for it
	began := time.Now()
	down := &download{w: w, rc: http.NewResponseController(w)}
	out := bufio.NewWriterSize(down, request.ReadChunk)
	err := source.Backup(ctx, out)
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
	case errors.Is(err, engine.ErrBusy):
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
