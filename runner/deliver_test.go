package runner

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/runner/runfolder"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
	"arbe.0sk.ar/runner/thread/redact"
)

// partition is a network that lets nothing through for a while, and then a server that takes everything.
type partition struct {
	until time.Time
	tries int
	kept  []string // the posts that were taken, in order
}

func (p *partition) RoundTrip(r *http.Request) (*http.Response, error) {
	p.tries++
	if time.Now().Before(p.until) {
		return nil, errors.New("no route to host")
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.kept = append(p.kept, string(b))
	w := httptest.NewRecorder()
	_, _ = w.WriteString(`{"nextOffset":"1"}`)
	return w.Result(), nil
}

// However long nobody is there, the last lines and the terminal get through soon after somebody is again, once, in
// order, and without a storm of tries before. The time is a bubble's.
func TestDeliverAfterPartition(t *testing.T) {
	for _, away := range []time.Duration{2 * time.Minute, 3 * time.Hour, 72 * time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			dir := t.TempDir()
			folder, err := runfolder.New(dir, "t1", "r1")
			if err != nil {
				t.Fatal(err)
			}
			defer folder.Close()
			path := filepath.Join(dir, "s.jsonl")
			const lines = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}` + "\n"
			if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				net := &partition{until: time.Now().Add(away)}
				cl := &client.Client{
					Base:   "http://away",
					Thread: "t1",
					Token:  client.StaticToken("x"),
					HTTP:   &http.Client{Transport: net},
				}
				r := &run{Config: Config{Client: cl, Log: slog.New(slog.DiscardHandler), Folder: folder}}
				m := &mirror.Mirror{
					Encoder: mirror.Encoder{
						Namer:  mirror.Namer{Dialect: session.Pi, Session: "s1"},
						Redact: &redact.Redactor{},
					}, Path: path, Log: r.Log,
					Append: func(ctx context.Context, entries []thread.Entry) error {
						_, err := cl.Append(ctx, entries)
						return err
					},
				}
				r.trail = &trail{
					sessions: []harness.Session{{Path: path, ID: "s1"}}, mirrors: []*mirror.Mirror{m},
				}
				defer r.trail.Close()
				began := time.Now()
				if err := r.deliver(t.Context(), []thread.Entry{{ID: "r1.end.0", TS: thread.Stamp(began), Payload: []byte(`{"type":"signal.thread.status_changed"}`)}}); err != nil {
					t.Fatal(err)
				}
				if late := time.Since(began) - away; late > 30*time.Second {
					t.Errorf("it took %v after the partition's end", late)
				}
				if most := int(away/time.Second) + 20; net.tries > most {
					t.Errorf("%d tries in %v", net.tries, away)
				}
				if len(net.kept) != 2 || !strings.Contains(net.kept[0], "pi:s1:") ||
					!strings.Contains(net.kept[1], "r1.end.0") {
					t.Errorf("posted %q", net.kept)
				}
				t.Logf(
					"partition %v: %d tries, delivered %v after its end", away, net.tries,
					(time.Since(began) - away).Round(time.Millisecond),
				)
			})
		})
	}
}
