package launch

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/local"
	"arbe.0sk.ar/runner/thread/redact"
)

// Launches in one box at the same time each have their files on its list: none fails, and none drops another's.
func TestNoteSecrets(t *testing.T) {
	box, err := local.New(t.TempDir()).Create(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	note := func(paths ...string) error {
		var files []File
		for _, p := range paths {
			files = append(files, File{Path: "~/" + p, Sensitive: true})
		}
		return noteSecrets(t.Context(), box, append(files, File{Path: "~/no secret"}))
	}
	var want []string
	var all errgroup.Group
	for i := range 16 {
		own := fmt.Sprintf(".a file %d", i)
		want = append(want, own)
		all.Go(func() error { return note(own, "/shared/-n") })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := note("/shared/-n", ".a file 3"); err != nil {
		t.Fatal(err)
	}
	var list bytes.Buffer
	if err := box.Download(t.Context(), redact.Files, &list); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(list.String(), "\n"), "\n")
	if n := len(lines); n > 32 {
		t.Errorf("the list grows with each launch: %d lines", n)
	}
	slices.Sort(lines)
	slices.Sort(want)
	if got := slices.Compact(lines); !slices.Equal(got, append(want, "/shared/-n")) {
		t.Errorf("the list has\n%s", strings.Join(got, "\n"))
	}
}
