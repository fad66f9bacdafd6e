package daemon_test

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// Where no server has the folder, the log is copied from there; where there is none, nothing is made.
func TestBackupOfFolder(t *testing.T) {
	data := daemon.Data(t.TempDir())
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	if err := data.Backup(t.Context(), io.Discard, logger); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no log: %v", err)
	}
	if entries, err := os.ReadDir(string(data)); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	url, stop := serve(t, daemon.Config{Addr: "127.0.0.1:0", Data: data, Secrets: [][]byte{secret}})
	c := &client.Client{Base: thread.BaseURL(url), Thread: "t1", Token: client.StaticToken(writer(t, "t1"))}
	if _, err := c.Append(t.Context(), []thread.Entry{{ID: "a", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"x"}`)}}); err != nil {
		t.Fatal(err)
	}
	if err := data.Backup(t.Context(), io.Discard, logger); err == nil {
		t.Error("a folder that a server has was opened")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := data.Backup(t.Context(), &b, logger); err != nil {
		t.Fatal(err)
	}
	if info, err := daemon.CheckBackup(t.Context(), strings.NewReader(b.String())); err != nil || info.Files == 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, err := data.Restore(t.Context(), strings.NewReader(b.String())); !errors.Is(err, daemon.ErrLogExists) {
		t.Errorf("over a log: %v", err)
	}
}
