package folder_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox"
)

func TestExclude(t *testing.T) {
	for _, tt := range []struct {
		patterns []string
		path     string // a folder where it ends in /
		want     bool
	}{
		{nil, "a", false},
		{[]string{"node_modules"}, "node_modules/", true},
		{[]string{"node_modules"}, "a/node_modules/x", true},
		{[]string{"node_modules"}, "a/node_modules2", false},
		{[]string{"node_modules/"}, "node_modules/", true},
		{[]string{"node_modules/"}, "a/node_modules/b/c", true},
		{[]string{"node_modules/"}, "node_modules", false},
		{[]string{"/x"}, "x", true},
		{[]string{"/x"}, "x/y", true},
		{[]string{"/x"}, "a/x", false},
		{[]string{"./x"}, "x", true},
		{[]string{"./x"}, "a/x", false},
		{[]string{"./x/"}, "x/y", true},
		{[]string{"x/**"}, "x/", false},
		{[]string{"x/**"}, "x/a", true},
		{[]string{"x/**"}, "x/a/b", true},
		{[]string{"x/**"}, "a/x/b", false},
		{[]string{"**/x"}, "x", true},
		{[]string{"**/x"}, "a/b/x", true},
		{[]string{"a/**/b"}, "a/b", true},
		{[]string{"a/**/b"}, "a/x/y/b", true},
		{[]string{"a/**/b"}, "x/a/b", false},
		{[]string{"a/b"}, "a/b", true},
		{[]string{"a/b"}, "x/a/b", false},
		{[]string{"*.log"}, "a.log", true},
		{[]string{"*.log"}, "a/.log", true},
		{[]string{"*.log"}, "a.log/b", true},
		{[]string{"*.log"}, "a.logs", false},
		{[]string{"a/*.log"}, "a/b/c.log", false},
		{[]string{"[!a]x"}, "bx", true},
		{[]string{"[!a]x"}, "ax", false},
		{[]string{"*.log", "!keep.log"}, "keep.log", false},
		{[]string{"*.log", "!keep.log"}, "other.log", true},
		{[]string{"!keep.log", "*.log"}, "keep.log", true},
		{[]string{"d/", "!d/keep"}, "d/keep", true}, // what is in an excluded folder can't be taken in again
		{[]string{"a b\xff"}, "x/a b\xff", true},
	} {
		name, isDir := tt.path, false
		if name[len(name)-1] == '/' {
			name, isDir = name[:len(name)-1], true
		}
		if got, err := folder.Excluded(tt.patterns, name, isDir); got != tt.want || err != nil {
			t.Errorf("%q excludes %q: %v, %v", tt.patterns, tt.path, got, err)
		}
	}
	for _, bad := range []string{"", "/", "./", ".", "a//b", "..", "a/../b", "[a", "!"} {
		if _, err := folder.Excluded([]string{bad}, "x", false); err == nil {
			t.Errorf("%q is taken for a pattern", bad)
		}
		if err := (folder.Folder{Path: t.TempDir(), Exclude: []string{bad}}).Check(); err == nil {
			t.Errorf("%q is taken for a pattern", bad)
		}
	}
	if err := (folder.Folder{Path: t.TempDir() + "/none"}).Check(); err == nil {
		t.Error("a folder that is not there passed")
	}
}

// TestExcludeBothWays: what is excluded is copied in neither direction, and not deleted.
func TestExcludeBothWays(t *testing.T) {
	each(t, func(t *testing.T, p sandbox.Provider) {
		s := newScene(t, p, "node_modules/", "/x", "./y", "z/**", "*.log", `lit[*]`)
		write(t, s.Path, "node_modules/m", "1", "a/node_modules/m", "1", "x", "1", "a/x", "1",
			"y/y", "1", "z/z", "1", "b.log", "1")
		s.copyIn(t)
		if got, want := tree(t, s.work()), "a/\na/x: 1\nz/"; got != want {
			t.Fatalf("the box has\n%s\nwant\n%s", got, want)
		}
		write(t, s.work(), "node_modules/n", "2", "x", "2", "a/x", "2", "y/y", "2", "z/n", "2", "c.log", "2", "lit*",
			"2")
		s.Delete = true
		res := s.pull(t)
		want := "a/\na/node_modules/\na/node_modules/m: 1\na/x: 2\nb.log: 1\n" +
			"node_modules/\nnode_modules/m: 1\nx: 1\ny/\ny/y: 1\nz/\nz/z: 1"
		if got := tree(t, s.Path); got != want || res.Copied != 1 || res.Deleted != 0 {
			t.Errorf("%+v; got\n%s\nwant\n%s", res, got, want)
		}
	})
}
