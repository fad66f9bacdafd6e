package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// The lines of one session are read and posted before those of the next, also while posts fail. A session that can't be
// read does not keep the next one.
func TestTrail(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, first string)
		want   string
	}{
		{"both", func(*testing.T, string) {}, "a1 a2 a3 b1 b2"},
		{"the first can't be read", func(t *testing.T, first string) {
			if err := errors.Join(os.Remove(first), os.Mkdir(first, 0o700)); err != nil {
				t.Fatal(err)
			}
		}, "b1 b2"},
		{"the first is gone", func(t *testing.T, first string) {
			if err := os.Remove(first); err != nil {
				t.Fatal(err)
			}
		}, "b1 b2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := func(id string, lines int) harness.Session {
				s := harness.Session{Path: filepath.Join(dir, id), ID: id}
				var content strings.Builder
				for i := range lines {
					fmt.Fprintf(&content, `{"type":"user","uuid":"%s%d"}`+"\n", id, i+1)
				}
				if err := os.WriteFile(s.Path, []byte(content.String()), 0o600); err != nil {
					t.Fatal(err)
				}
				return s
			}
			away := true
			var posted, tallied []string
			trail := &trail{grown: make(chan struct{}, 1)}
			open := func(k int, id string, before *mirror.Mirror, _ bool) *mirror.Mirror {
				m := &mirror.Mirror{
					Encoder: mirror.Encoder{
						Namer: mirror.Namer{Dialect: session.Claude, Session: id}, Redact: &redact.Redactor{},
					},
					Find:  func() (path, id string) { return trail.at(k) },
					Log:   slog.New(slog.DiscardHandler),
					Tally: func(_ string, e session.Entry) { tallied = append(tallied, e.ID) },
					Append: func(_ context.Context, entries []thread.Entry) error {
						if away {
							return errors.New("away")
						}
						for _, e := range entries {
							posted = append(posted, e.ID[strings.LastIndexByte(e.ID, ':')+1:])
						}
						return nil
					},
				}
				if before != nil {
					m.Gate = func(ctx context.Context) error { return passable(before.Sync(ctx)) }
				}
				return m
			}
			first := file("a", 3)
			trail.put(first, func(bool) {})
			trail.begin(open)
			defer trail.Close() // read only
			tt.change(t, first.Path)
			_ = trail.Look(false) // an unreadable file
			trail.put(file("b", 2), func(another bool) {
				if !another {
					t.Error("the second session is the first one")
				}
			})
			_ = trail.Look(false)
			if err := trail.Drain(t.Context()); err == nil {
				t.Error("no error while the server is away")
			}
			if trail.Next() != 0 || len(posted) > 0 {
				t.Errorf("%q were posted, the next line is %d", posted, trail.Next())
			}
			away = false
			err := trail.Drain(t.Context())
			if got := strings.Join(posted, " "); got != tt.want {
				t.Errorf("posted %s, want %s (%v)", got, tt.want, err)
			}
			if got := strings.Join(tallied, " "); got != tt.want {
				t.Errorf("read %s, want %s", got, tt.want)
			}
			at, next := trail.Tallied()
			if at.Index != 2 || next != number(1, 2) || trail.Next() != next {
				t.Errorf("%d lines, the next is %d, and the next to post %d", at.Index, next, trail.Next())
			}
			if n, seen := trail.Counts(); int(n) != len(posted) || seen != n {
				t.Errorf("%d posted, %d read", n, seen)
			}
		})
	}
}
