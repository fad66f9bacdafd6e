package folder_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
)

// edit is a change of one side of a cell, whose folder has the file f ("old") or the folder d (a: "a", b/c: "c").
type edit func(t *testing.T, dir string)

func do(steps ...edit) edit {
	return func(t *testing.T, dir string) {
		for _, s := range steps {
			s(t, dir)
		}
	}
}

func put(files ...string) edit { return func(t *testing.T, dir string) { write(t, dir, files...) } }
func gone(name string) edit    { return func(t *testing.T, dir string) { remove(t, dir+"/"+name) } }

func link(name, target string) edit {
	return func(t *testing.T, dir string) { must(t, os.Symlink(target, dir+"/"+name)) }
}

func mode(name string, m os.FileMode) edit {
	return func(t *testing.T, dir string) { must(t, os.Chmod(dir+"/"+name, m)) }
}

var none edit = func(*testing.T, string) {}

// cell is one cell of the matrix: what the box did, what the host did, and what the host has then.
type cell struct {
	base      string // "file", "folder", or "" for nothing
	box, host string
	want      string // lines of tree, joined by "; "
	deleting  string // the same with Delete; "" for the same
	conflict  string // the path reported: "" for none, "deleting" for f or d/a with Delete alone
}

// boxEdits and hostEdits are the sides of the matrix, by the base.
var boxEdits = map[string]map[string]edit{
	"": {
		"made": put("f", "box"), "made equal": put("f", "same"), "made a folder": put("f/x", "box"),
		"made a link": link("f", "/box"), "made a mode": do(put("f", "box"), mode("f", 0o700)),
	},
	"file": {
		"edited": put("f", "box"), "deleted": gone("f"), "became folder": do(gone("f"), put("f/x", "box")),
		"became link": do(gone("f"), link("f", "/box")), "mode": mode("f", 0o755), "edited equal": put("f", "same"),
	},
	"folder": {
		"edited": put("d/a", "box"), "made": put("d/n", "box"), "deleted": gone("d"),
		"became file": do(gone("d"), put("d", "box")), "became link": do(gone("d"), link("d", "/etc")),
		"mode": mode("d", 0o700),
	},
}

var hostEdits = map[string]map[string]edit{
	"": {
		"same": none, "made": put("f", "host"), "made equal": put("f", "same"), "made a folder": put("f/y", "host"),
		"made a link": link("f", "/host"),
	},
	"file": {
		"same": none, "edited": put("f", "host"), "deleted": gone("f"), "made": do(gone("f"), put("f/y", "host")),
		"linked": do(gone("f"), link("f", "/host")), "mode": mode("f", 0o600), "edited equal": put("f", "same"),
	},
	"folder": {
		"same": none, "edited": put("d/a", "host"), "deleted": gone("d"), "made": put("d/m", "host"),
		"became file": do(gone("d"), put("d", "host")), "linked": do(gone("d"), link("d", "/etc")),
	},
}

// matrix has a row for each cell. A folder is given as its content.
var matrix = []cell{
	{"", "made", "same", "f: box", "", ""},
	{"", "made", "made", "f: host; f.box: box", "", "f"},
	{"", "made", "made a folder", "f/; f/y: host; f.box: box", "", "f"},
	{"", "made", "made a link", "f -> /host; f.box: box", "", "f"},
	{"", "made equal", "made equal", "f: same", "", ""},
	{"", "made a folder", "same", "f/; f/x: box", "", ""},
	{"", "made a folder", "made", "f: host; f.box/; f.box/x: box", "", "f"},
	{"", "made a folder", "made a folder", "f/; f/x: box; f/y: host", "", ""},
	{"", "made a folder", "made a link", "f -> /host; f.box/; f.box/x: box", "", "f"},
	{"", "made a link", "same", "f -> /box", "", ""},
	{"", "made a link", "made", "f: host; f.box -> /box", "", "f"},
	{"", "made a link", "made a folder", "f/; f/y: host; f.box -> /box", "", "f"},
	{"", "made a link", "made a link", "f -> /host; f.box -> /box", "", "f"},
	{"", "made a mode", "same", "f: box (-rwx------)", "", ""},
	{"", "made a mode", "made", "f: host; f.box: box (-rwx------)", "", "f"},

	{"file", "edited", "same", "f: box", "", ""},
	{"file", "edited", "edited", "f: host; f.box: box", "", "f"},
	{"file", "edited", "deleted", "f.box: box", "", "f"},
	{"file", "edited", "made", "f/; f/y: host; f.box: box", "", "f"},
	{"file", "edited", "linked", "f -> /host; f.box: box", "", "f"},
	{"file", "edited", "mode", "f: old (-rw-------); f.box: box", "", "f"},
	{"file", "edited equal", "edited equal", "f: same", "", ""},
	{"file", "deleted", "same", "f: old", "-", ""},
	{"file", "deleted", "edited", "f: host", "", "deleting"},
	{"file", "deleted", "deleted", "-", "", ""},
	{"file", "deleted", "made", "f/; f/y: host", "", "deleting"},
	{"file", "deleted", "linked", "f -> /host", "", "deleting"},
	{"file", "deleted", "mode", "f: old (-rw-------)", "", "deleting"},
	{"file", "became folder", "same", "f/; f/x: box", "", ""},
	{"file", "became folder", "edited", "f: host; f.box/; f.box/x: box", "", "f"},
	{"file", "became folder", "deleted", "f.box/; f.box/x: box", "", "f"},
	{"file", "became folder", "made", "f/; f/x: box; f/y: host", "", ""},
	{"file", "became folder", "linked", "f -> /host; f.box/; f.box/x: box", "", "f"},
	{"file", "became link", "same", "f -> /box", "", ""},
	{"file", "became link", "edited", "f: host; f.box -> /box", "", "f"},
	{"file", "became link", "deleted", "f.box -> /box", "", "f"},
	{"file", "became link", "made", "f/; f/y: host; f.box -> /box", "", "f"},
	{"file", "became link", "linked", "f -> /host; f.box -> /box", "", "f"},
	{"file", "mode", "same", "f: old (-rwxr-xr-x)", "", ""},
	{"file", "mode", "edited", "f: host; f.box: old (-rwxr-xr-x)", "", "f"},
	{"file", "mode", "deleted", "f.box: old (-rwxr-xr-x)", "", "f"},
	{"file", "mode", "made", "f/; f/y: host; f.box: old (-rwxr-xr-x)", "", "f"},
	{"file", "mode", "mode", "f: old (-rw-------); f.box: old (-rwxr-xr-x)", "", "f"},

	{"folder", "edited", "same", "d/; d/a: box; d/b/; d/b/c: c", "", ""},
	{"folder", "edited", "edited", "d/; d/a: host; d/a.box: box; d/b/; d/b/c: c", "", "d/a"},
	{"folder", "edited", "deleted", "d/; d/a.box: box", "", "d/a"},
	{"folder", "edited", "made", "d/; d/a: box; d/b/; d/b/c: c; d/m: host", "", ""},
	{"folder", "edited", "became file", "d: host; d.box/; d.box/a: box", "", "d"},
	{"folder", "edited", "linked", "d -> /etc; d.box/; d.box/a: box", "", "d"},
	{"folder", "made", "same", "d/; d/a: a; d/b/; d/b/c: c; d/n: box", "", ""},
	{"folder", "made", "edited", "d/; d/a: host; d/b/; d/b/c: c; d/n: box", "", ""},
	{"folder", "made", "deleted", "d/; d/n: box", "", ""},
	{"folder", "made", "made", "d/; d/a: a; d/b/; d/b/c: c; d/m: host; d/n: box", "", ""},
	{"folder", "made", "became file", "d: host; d.box/; d.box/n: box", "", "d"},
	{"folder", "made", "linked", "d -> /etc; d.box/; d.box/n: box", "", "d"},
	{"folder", "deleted", "same", "d/; d/a: a; d/b/; d/b/c: c", "-", ""},
	{"folder", "deleted", "edited", "d/; d/a: host; d/b/; d/b/c: c", "d/; d/a: host", "deleting"},
	{"folder", "deleted", "deleted", "-", "", ""},
	{"folder", "deleted", "made", "d/; d/a: a; d/b/; d/b/c: c; d/m: host", "d/; d/m: host", ""},
	{"folder", "became file", "same", "d/; d/a: a; d/b/; d/b/c: c; d.box: box", "d: box", "keeping d"},
	{"folder", "became file", "edited", "d/; d/a: host; d/b/; d/b/c: c; d.box: box", "d/; d/a: host; d.box: box", "d"},
	{"folder", "became file", "deleted", "d.box: box", "", "d"},
	{"folder", "became file", "made", "d/; d/a: a; d/b/; d/b/c: c; d/m: host; d.box: box", "d/; d/m: host; d.box: box", "d"},
	{"folder", "became file", "became file", "d: host; d.box: box", "", "d"},
	{"folder", "became link", "same", "d/; d/a: a; d/b/; d/b/c: c; d.box -> /etc", "d -> /etc", "keeping d"},
	{"folder", "became link", "edited", "d/; d/a: host; d/b/; d/b/c: c; d.box -> /etc", "d/; d/a: host; d.box -> /etc", "d"},
	{"folder", "became link", "deleted", "d.box -> /etc", "", "d"},
	{"folder", "became link", "made", "d/; d/a: a; d/b/; d/b/c: c; d/m: host; d.box -> /etc", "d/; d/m: host; d.box -> /etc", "d"},
	{"folder", "became link", "linked", "d -> /etc", "", ""},
	{"folder", "mode", "same", "d/ (-rwx------); d/a: a; d/b/; d/b/c: c", "", ""},
	{"folder", "mode", "edited", "d/ (-rwx------); d/a: host; d/b/; d/b/c: c", "", ""},
	{"folder", "mode", "deleted", "-", "", ""},
	{"folder", "mode", "made", "d/ (-rwx------); d/a: a; d/b/; d/b/c: c; d/m: host", "", ""},
}

func (c cell) name(i int) string {
	return strings.ReplaceAll(fmt.Sprintf("%02d %s %s, host %s", i, c.base, c.box, c.host), " ", "-")
}

// fill fills a scene with the cells, and has both sides do what they do.
func fill(t *testing.T, s *scene) {
	t.Helper()
	for i, c := range matrix {
		dir := s.dir(c.name(i))
		write(t, dir, "untouched", "")
		switch c.base {
		case "file":
			write(t, dir, "f", "old")
		case "folder":
			write(t, dir, "d/a", "a", "d/b/c", "c")
		}
	}
	s.copyIn(t)
	for i, c := range matrix {
		box, host := boxEdits[c.base][c.box], hostEdits[c.base][c.host]
		if box == nil || host == nil {
			t.Fatalf("%+v: no such edit", c)
		}
		box(t, s.work(c.name(i)))
		host(t, s.dir(c.name(i)))
	}
}

// check checks the folder against the matrix.
func check(t *testing.T, s *scene, conflicts []string) {
	t.Helper()
	for i, c := range matrix {
		want := c.want
		if s.Delete && c.deleting != "" {
			want = c.deleting
		}
		var lines []string
		if want != "-" {
			lines = strings.Split(want, "; ")
		}
		lines = append(lines, "untouched: ")
		slices.Sort(lines)
		got := strings.Split(tree(t, s.dir(c.name(i))), "\n")
		slices.Sort(got)
		if !slices.Equal(got, lines) {
			t.Errorf("%s: got\n\t%s\nwant\n\t%s", c.name(i), strings.Join(got, "\n\t"), strings.Join(lines, "\n\t"))
		}
		var told []string
		for _, p := range conflicts {
			if rest, ok := strings.CutPrefix(p, c.name(i)+"/"); ok {
				told = append(told, rest)
			}
		}
		is := c.conflict
		if rest, ok := strings.CutPrefix(is, "keeping "); ok {
			if is = rest; s.Delete {
				is = ""
			}
		}
		if is == "deleting" {
			is = map[string]string{"file": "f", "folder": "d/a"}[c.base]
			if !s.Delete {
				is = ""
			}
		}
		if s.Delete && c.base == "folder" && c.host == "edited" && strings.HasPrefix(c.box, "became") {
			is += " d/a" // the deletion of it, too, is not done
		}
		if got := strings.Join(told, " "); got != is {
			t.Errorf("%s: conflicts %q, want %q", c.name(i), got, is)
		}
	}
}

// TestMatrix combines each change of a path on one side with each change on the other.
func TestMatrix(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		for _, deletes := range []bool{false, true} {
			t.Run(fmt.Sprintf("delete=%v", deletes), func(t *testing.T) {
				t.Parallel()
				s := newScene(t, p)
				s.Delete = deletes
				fill(t, s)
				first := s.pull(t)
				check(t, s, first.Conflicts)
				before := tree(t, s.Path)
				again := s.pull(t)
				if after := tree(t, s.Path); after != before {
					t.Errorf("a second sync changed\n%s\nto\n%s", before, after)
				}
				if len(again.Conflicts) > 0 || again.Copied > 0 || again.Deleted > 0 {
					t.Errorf("a second sync did %+v", again)
				}
			})
		}
	})
}
