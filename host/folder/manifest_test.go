package folder_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/folder/repository"
)

func TestManifest(t *testing.T) {
	files := folder.Manifest{
		"a":          {Type: folder.File, Mode: 0o644, Size: 3, SHA256: folder.Sum{1, 2, 255}},
		"<d> \n\"é":  {Type: folder.Dir, Mode: 0o700},
		"l\xff\xfe":  {Type: folder.Link, Link: "to\xff"},
		"d/" + "l":   {Type: folder.Link, Link: "/to \x01"},
		"empty/file": {Type: folder.File},
	}
	index := repository.Index{"a": {Mode: "100644", Object: "o"}, "\xff": {Mode: "160000", Sparse: true}}
	m := folder.Base{Manifest: files, Repositories: map[string]repository.State{
		"":    {Head: "refs/heads/main", Commit: "c", Refs: map[string]string{"refs/heads/main": "c"}, Index: index},
		"sub": {Stash: []string{"s"}, Busy: "MERGE_HEAD"},
	}}
	path := filepath.Join(t.TempDir(), "manifest")
	for range 2 { // also over one that is there
		must(t, m.Save(path))
		got, err := folder.Load(path)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("got %v, %v\nwant %v", got, err, m)
		}
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	for n := range data[:len(data)-1] { // without the last newline it is whole
		if _, err := folder.Decode(bytes.NewReader(data[:n])); err == nil {
			t.Fatalf("cut at %d of %d bytes it was read", n, len(data))
		}
	}
	for _, bad := range []string{
		`{"manifest":2,"entries":0}`, "{\"manifest\":1,\"entries\":1}\n{\"path\":\"a\",\"type\":\"f\",\"sha256\":\"abc\"}",
		"{\"manifest\":1,\"entries\":2}\n{\"path\":\"a\",\"type\":\"d\"}{\"path\":\"a\",\"type\":\"d\"}",
	} {
		if _, err := folder.Decode(strings.NewReader(bad)); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if _, err := folder.Load(path + ".none"); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}
