package hydrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// ship mirrors a session file with this content to a thread.
func ship(t testing.TB, d session.Dialect, content []byte, server *fakethread.Server) {
	t.Helper()
	shipFrom(t, d, "s0", session.Position{}, content, server)
}

// shipFrom mirrors the file's lines after a position. sid is the session's id where no line has one.
func shipFrom(
	t testing.TB, d session.Dialect, sid string, from session.Position, content []byte, server *fakethread.Server,
) {
	t.Helper()
	encoder := mirror.Encoder{Namer: mirror.Namer{Dialect: d, Session: sid}, Redact: &redact.Redactor{}}
	shipBy(t, encoder, from, content, server)
}

// shipBefore mirrors a file whose first user line repeats chats and the prompt of the run r1.
func shipBefore(t testing.TB, d session.Dialect, content []byte, server *fakethread.Server, chats []string) {
	t.Helper()
	shipBy(t, mirror.Encoder{
		Namer: mirror.Namer{Dialect: d, Session: "s0"}, Redact: &redact.Redactor{}, Prompt: "r1.prompt", Before: chats,
	}, session.Position{}, content, server)
}

func shipBy(
	t testing.TB, encoder mirror.Encoder, from session.Position, content []byte, server *fakethread.Server,
) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &mirror.Mirror{
		Encoder: encoder, Path: path, From: from, Log: slog.New(slog.DiscardHandler),
		Append: func(ctx context.Context, entries []thread.Entry) error {
			_, err := server.Client().Append(ctx, entries)
			return err
		},
	}
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// message is a line of pi's with a message.
func message(id, parent, body string) string {
	up := "null"
	if parent != "" {
		up = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"type":"message","id":"%s","parentId":%s,"timestamp":"2026-01-01T00:00:01.500Z","message":%s}`,
		id, up, body)
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
