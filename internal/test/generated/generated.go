// Package generated keeps the parts of documents that programs write. Each stands between two marks that have its name;
// a test computes its text and calls Hold, and make docs writes what differs. The parts and the tests are in Parts, so
// that the test of the documents' size leaves out what has another source, and nothing else.
package generated

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Parts has the page of each part, by the part's name.
var Parts = map[string]string{
	"payloads":  "PAYLOADS.md",    // internal/test/wire: from entry.schema.json and testdata/threads
	"names":     "PAYLOADS.md",    // internal/test/wire: from thread/scan.go
	"api":       "API.md",         // internal/test/wire: from openapi.yaml
	"ids":       "PAYLOADS.md",    // internal/test/wire: from entry.schema.json
	"classes":   "OUTCOMES.md",    // internal/test/wire: from entry.schema.json
	"tokens":    "API.md",         // internal/test/wire: from openapi.yaml
	"client":    "PROTOCOL.md",    // internal/test/wire: examples/client.ts
	"commands":  "COMMANDS.md",    // internal/test/e2e/docs: the helps of both programs
	"variables": "ENVIRONMENT.md", // internal/test/e2e/docs: the flags in those helps
	"tools":     "BOTS.md",        // host/dispatch/tools: the tools of bots
	"hello":     "ADD-A-TOOL.md",  // host/dispatch/tools: hello.go
	"recipe":    "RECIPES.md",     // internal/test/wire: from environment.schema.json
	"settings":  "HOUSES.md",      // internal/test/wire: from dispatch.schema.json
	"doors":     "API.md",         // internal/test/scripts: what a real server answers
	"providers": "PROVIDERS.md",   // internal/test/providers: from host/sandbox/providers
}

func begin(name string) string { return fmt.Sprintf("<!-- make docs writes this part: %s -->\n", name) }

func end(name string) string { return fmt.Sprintf("<!-- The end of %s. -->\n", name) }

// Hold fails the test where a part of a page below docs, a folder, is not want; with update it writes the part.
func Hold(t *testing.T, docs, name, want string, update bool) {
	t.Helper()
	page, is := Parts[name]
	if !is {
		t.Fatalf("there is no part %s", name)
	}
	path := docs + "/" + page
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, got, after, found := Cut(string(b), name)
	want = "\n" + strings.Trim(want, "\n") + "\n\n"
	switch {
	case !found:
		t.Fatalf("%s has no part between %q and %q", path, begin(name), end(name))
	case got == want:
	case !update:
		t.Fatalf("%s is not up to date: run make docs; the page (-), what it should have (+):\n%s",
			path, cmp.Diff(got, want))
	default:
		text := before + begin(name) + want + end(name) + after
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Cut returns what stands before, in and behind a part of a page, without its marks.
func Cut(page, name string) (before, part, after string, found bool) {
	before, rest, begins := strings.Cut(page, begin(name))
	part, after, ends := strings.Cut(rest, end(name))
	return before, part, after, begins && ends
}
