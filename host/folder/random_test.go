package folder_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/sandbox/local"
)

// seedsVar is the variable with the number of seeds that TestRandom plays.
const seedsVar = "ARBE_SYNC_SEEDS"

// TestRandom has both sides change a small tree at random, merges, and does so again. Whatever they do:
// what the host has and the base has not stays as it is; each content that the box has changed is in the folder after;
// without Delete each file of the host's is still there; with it, what was deleted in the box and is unchanged here is
// gone; and a second sync does nothing.
func TestRandom(t *testing.T) {
	t.Parallel()
	seeds := 15
	if n, err := strconv.Atoi(os.Getenv(seedsVar)); err == nil {
		seeds = n
	}
	boxes := local.New(t.TempDir())
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		s := newScene(t, boxes)
		s.Delete = seed%2 == 1
		write(t, s.Path, "kept", "") // an empty box is refused
		mess(t, r, s.Path, "base", 12)
		s.copyIn(t)
		for round := range 3 {
			mess(t, r, s.Path, fmt.Sprint("host", round), 5)
			mess(t, r, s.work(), fmt.Sprint("box", round), 5)
			host, box, base := scan(t, s.Path), scan(t, s.work()), s.Base.Manifest
			story := fmt.Sprintf("seed %d, round %d\nhost:\n%s\nbox:\n%s", seed, round, tree(t, s.Path),
				tree(t, s.work()))
			res := s.pull(t)
			story += fmt.Sprintf("\nafter:\n%s\n%v", tree(t, s.Path), res.Conflicts)
			after := scan(t, s.Path)
			all := map[folder.Sum]bool{}
			for _, e := range after {
				all[mark(e)] = true
			}
			for path, e := range host {
				if e.Type != folder.Dir && e != base[path] && after[path] != e && box[path] != e {
					t.Fatalf("%s of the host was lost\n%s", path, story)
				}
				if !s.Delete && after[path].Type == folder.Absent {
					t.Fatalf("%s was deleted\n%s", path, story)
				}
			}
			for path, e := range box {
				if e.Type != folder.Dir && e != base[path] && !all[mark(e)] {
					t.Fatalf("%s of the box is not there\n%s", path, story)
				}
			}
			for path, e := range base {
				_, has := box[path]
				if s.Delete && !has && e.Type != folder.Dir && host[path] == e && after[path].Type != folder.Absent {
					t.Fatalf("%s was not deleted\n%s", path, story)
				}
			}
			if again := s.pull(t); again.Copied+again.Deleted+len(again.Conflicts) > 0 ||
				!maps.Equal(scan(t, s.Path), after) {
				t.Fatalf("a second sync: %+v\n%s\nthen:\n%s", again, story, tree(t, s.Path))
			}
		}
	}
}

// mark identifies the content of an entry.
func mark(e folder.Entry) folder.Sum {
	if e.Type == folder.Link {
		return sha256.Sum256([]byte("link " + e.Link))
	}
	return e.SHA256
}

// scan returns the manifest of a folder, as it is.
func scan(t *testing.T, dir string) folder.Manifest {
	t.Helper()
	m := folder.Manifest{}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		must(t, err)
		e := folder.Entry{Type: folder.File, Mode: info.Mode().Perm(), Size: info.Size()}
		switch {
		case d.IsDir():
			e.Type, e.Size = folder.Dir, 0
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			must(t, err)
			e = folder.Entry{Type: folder.Link, Link: target}
		default:
			data, err := os.ReadFile(path)
			must(t, err)
			e.SHA256 = sha256.Sum256(data)
		}
		rel, err := filepath.Rel(dir, path)
		m[rel] = e
		return err
	}))
	return m
}

// mess changes a folder n times at random. Each content is a new one, but where it is made on both sides.
func mess(t *testing.T, r *rand.Rand, dir, by string, n int) {
	t.Helper()
	names := []string{"a", "b", "a.box"}
	for i := range n {
		path := dir
		for depth := 1 + r.IntN(3); depth > 0; depth-- {
			path += "/" + names[min(r.IntN(7)/3, 2)]
			info, err := os.Lstat(path)
			if depth > 1 && (err != nil || !info.IsDir()) {
				must(t, os.RemoveAll(path))
				must(t, os.Mkdir(path, 0o755))
			}
		}
		there := scan(t, dir)
		at, _ := filepath.Rel(dir, path)
		content := fmt.Sprint(by, " ", i)
		if r.IntN(6) == 0 {
			content = "same"
		}
		switch r.IntN(7) {
		case 0, 1, 2:
			if there[at].Type != folder.File {
				must(t, os.RemoveAll(path))
			}
			must(t, os.WriteFile(path, []byte(content), 0o644))
		case 3:
			must(t, os.RemoveAll(path))
		case 4:
			must(t, os.RemoveAll(path))
			must(t, os.Symlink(strings.ReplaceAll(content, " ", ""), path))
		case 5:
			if there[at].Type == folder.File || there[at].Type == folder.Dir {
				must(t, os.Chmod(path, []os.FileMode{0o755, 0o700, 0o744}[r.IntN(3)]))
			}
		case 6: // of two that are there
			delete(there, "kept")
			all := slices.Sorted(maps.Keys(there))
			if len(all) > 1 {
				from := dir + "/" + all[r.IntN(len(all))]
				if !strings.HasPrefix(path+"/", from+"/") && !strings.HasPrefix(from+"/", path+"/") {
					must(t, os.RemoveAll(path))
					must(t, os.Rename(from, path))
				}
			}
		}
	}
}
