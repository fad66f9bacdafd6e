package mirror_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/fakethread"
)

// A session file that changes while it is mirrored: what is new comes, and what was there does not come again.
func TestChangedFile(t *testing.T) {
	user := func(id, parent, text string) string {
		return message(id, parent, `{"role":"user","content":"`+text+`"}`)
	}
	text := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	const (
		h1 = `{"type":"session","id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}`
		h2 = `{"type":"session","version":2,"id":"s1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}`
		h9 = `{"type":"session","version":3,"id":"s9","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}`
	)
	v1 := func(text string) string {
		return `{"type":"message","timestamp":"2026-01-01T00:00:01.500Z","message":{"role":"user","content":"` + text + `"}}`
	}
	inPlace := func(t *testing.T, path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	another := func(t *testing.T, path, content string) {
		if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	anew := func(t *testing.T, path, content string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		inPlace(t, path, content)
	}
	v3 := text(header, user("a", "", "one"), user("b", "a", "two"))
	for _, tt := range []struct {
		name   string
		before string
		change func(t *testing.T, path, content string)
		after  string
		want   string // what the change adds: ids, and what they are
	}{
		{"another file, the same and more", v3, another, v3 + text(user("c", "b", "three")), "pi:s1:c=chat"},
		{"another file, the same", v3, another, v3, ""},
		{"emptied and written anew, the same and more", v3, inPlace, v3 + text(user("c", "b", "three")), "pi:s1:c=chat"},
		{"emptied", v3, inPlace, "", ""},
		{"shortened, and another way", v3, inPlace, text(header, user("a", "", "one"), user("x", "a", "other")), "pi:s1:x=chat"},
		{"deleted and made again without a header", v3, anew, text(user("c", "b", "three"), user("d", "c", "four")), "pi:s1:c=chat pi:s1:d=chat"},
		{"another session", v3, another, text(h9, user("a", "", "one")), "pi:s9:s9=pi.session pi:s9:a=chat"},
		{"a line that was edited", v3, another, text(header, user("a", "", "ONE"), user("b", "a", "two"), user("c", "b", "three")), "pi:s1:c=chat"},
		{
			"from version 1 to 3", text(h1, v1("one"), v1("two"), v1("one")), inPlace,
			text(header, user("a", "", "one"), user("b", "a", "two"), user("c", "b", "one"), user("d", "c", "one")),
			"pi:s1:a=migrated:1 pi:s1:b=migrated:2 pi:s1:c=migrated:3 pi:s1:d=chat",
		},
		{
			"from version 2 to 3", text(h2, user("a", "", "one"), message("b", "a", `{"role":"hookMessage"}`)), inPlace,
			text(header, user("a", "", "one"), message("b", "a", `{"role":"custom"}`), user("c", "b", "three")), "pi:s1:c=chat",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := writeFile(t, []byte(tt.before))
			server := fakethread.New(t, nil)
			server.Rewritten()
			m := newMirror(t, path, "", server)
			sync(t, m)
			before := len(server.Entries())
			if n := strings.Count(tt.before, "\n"); before != n {
				t.Fatalf("%d entries of %d lines", before, n)
			}
			tt.change(t, path, tt.after)
			sync(t, m)
			sync(t, m)
			var got []string
			for _, e := range server.Entries()[before:] {
				p := payload(t, e)
				what := p.Type
				if p.Supersedes != "" {
					what = p.Kind + ":" + strings.TrimPrefix(strings.Split(p.Supersedes, ".")[0], "pi:s1:")
				}
				got = append(got, e.ID+"="+what)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			// A mirror that has not seen the change adds nothing, either.
			n := len(server.Entries())
			for _, e := range server.Entries() {
				server.Allow(e.ID)
			}
			sync(t, newMirror(t, path, "s1", server))
			if added := len(server.Entries()) - n; added != 0 {
				t.Errorf("mirroring again added %d entries", added)
			}
			if m.Posted() != int64(n) {
				t.Errorf("posted %d, and there are %d", m.Posted(), n)
			}
		})
	}
}

// A file that is gone ends there.
func TestDeletedFile(t *testing.T) {
	path := writeFile(t, lines(5))
	server := fakethread.New(t, nil)
	m := newMirror(t, path, "", server)
	sync(t, m)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	sync(t, m)
	if err := m.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(server.Entries()); n != 5 {
		t.Errorf("%d entries", n)
	}
}

// Where no event ever comes, as on a network file system, polling finds what is new. (Writes through another name of
// the file cause none.)
func TestRunWithoutEvents(t *testing.T) {
	path := writeFile(t, lines(2))
	other := filepath.Join(t.TempDir(), "other-name")
	if err := os.Link(path, other); err != nil {
		t.Fatal(err)
	}
	arrived := make(chan int, 10)
	server := fakethread.New(t, func(c fakethread.Call) fakethread.Fault {
		arrived <- len(c.Entries)
		return fakethread.Fault{}
	})
	m := newMirror(t, path, "", server)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-arrived
	f, err := os.OpenFile(other, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(message("late", "e1", `{"role":"user","content":"late"}`) + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
