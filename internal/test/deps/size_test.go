package deps_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/generated"
)

// most is how many bytes all documents may have together. What a program has written is not counted, nor are the pages
// for those who develop.
const most = 256_000

// uncounted are documents that are not counted, with the reason.
var uncounted = map[string]string{
	"CHANGELOG.md":    "it grows with each release",
	"CONTRIBUTING.md": "it has the table of packages",
	"docs/SCREENS.md": "make captures writes all of it",
}

// TestDocSize holds the size of the documents. To add something, make something else shorter, or say it once.
func TestDocSize(t *testing.T) {
	sum := 0
	for _, doc := range documents(t) {
		if uncounted[doc.path] != "" {
			continue
		}
		text := doc.text
		for name, page := range generated.Parts {
			if doc.path == "docs/"+page {
				before, _, after, found := generated.Cut(text, name)
				if !found {
					t.Errorf("%s lacks its generated part %s", doc.path, name)
				}
				text = before + after
			}
		}
		t.Logf("%7d %s", len(text), doc.path)
		sum += len(text)
	}
	if sum > most {
		t.Errorf("the documents have %d bytes, more than %d: make one of them shorter", sum, most)
	}
}

// held is a call by which a test holds a part.
var held = regexp.MustCompile(`generated\.(?:Hold|Cut)\((?:t, [^"]*"[^"]*", |string\(b\), )"([a-z]+)"`)

// TestParts holds that each generated part is held by a test, so that none is counted out that nobody writes.
func TestParts(t *testing.T) {
	found := map[string]bool{}
	walk(t, "_test.go", func(_, text string) {
		for _, m := range held.FindAllStringSubmatch(text, -1) {
			found[m[1]] = true
		}
	})
	want, got := slices.Sorted(maps.Keys(generated.Parts)), slices.Sorted(maps.Keys(found))
	if !slices.Equal(want, got) {
		t.Errorf("parts: %s; held by tests: %s", strings.Join(want, ", "), strings.Join(got, ", "))
	}
}
