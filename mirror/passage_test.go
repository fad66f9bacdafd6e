package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// TestPassage: behind a Passage a Mirror posts what it posts where it has read the file itself, and reads none of the
// lines that the Passage has noted.
func TestPassage(t *testing.T) {
	const count = 1700
	content := lines(count)
	again := bytes.SplitAfter(content, []byte("\n"))[7] // its id needs those of the lines before
	for _, tt := range []struct {
		name    string
		file    []byte
		missing int // index of the first line that the thread lacks; 0: it has all
		read    int // index of the first line that the Mirror reads
	}{
		{"all on the thread", content, 0, count},
		{"the thread lacks the end", content, 1650, 1500},
		{"the thread lacks all", content, 1, 0},
		{"a last line without a newline", content[:len(content)-1], 0, count - 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, notes := writeFile(t, tt.file), filepath.Join(t.TempDir(), "notes")
			posted := pass(t, path, notes, tt.missing)
			whole := slices.Concat(content, again)
			want := mirrored(t, path, whole, posted, "")
			if len(want) != count+1-posted.Index {
				t.Fatalf("%d entries behind line %d", len(want), posted.Index)
			}
			unread := 0 // bytes before the first line that is read, without those that identify the file
			for _, l := range bytes.SplitAfter(content, []byte("\n"))[:tt.read] {
				unread += len(l)
			}
			unread = max(0, unread-100)
			garbled := slices.Concat(bytes.Repeat([]byte("x"), unread), whole[unread:])
			if diff := cmp.Diff(want, mirrored(t, path, garbled, posted, notes)); diff != "" {
				t.Errorf("-without notes +with:\n%.2000s", diff)
			}
		})
	}
}

// pass makes a Passage over a file and returns the position behind the lines that the thread has.
func pass(t *testing.T, path, notes string, missing int) (posted session.Position) {
	t.Helper()
	reader := session.NewReader(path, session.Position{})
	defer reader.Close()
	p := mirror.NewPassage(newEncoder().Namer, path, notes)
	for {
		l, err := reader.Rest()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Next(l)
		if missing > 0 && l.Start.Index >= missing {
			p.Stop()
			continue
		}
		if posted = l.End; l.Torn {
			posted.Offset++ // the newline that it gets
		}
		p.Posted(l)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return posted
}

// mirrored returns what a Mirror posts of a file, into which content is written first.
func mirrored(t *testing.T, path string, content []byte, from session.Position, notes string) (ids []string) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	m := &mirror.Mirror{
		Encoder: *newEncoder(), Path: path, From: from, Notes: notes, Log: slog.New(slog.DiscardHandler),
		Append: func(_ context.Context, entries []thread.Entry) error {
			for _, e := range entries {
				ids = append(ids, e.ID)
			}
			return nil
		},
	}
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return ids
}
