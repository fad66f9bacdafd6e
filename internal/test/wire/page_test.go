package wire

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/generated"
	"arbe.0sk.ar/runner/thread"
)

var update = flag.Bool("update", false, "write the generated parts of docs")

// TestPageClient holds that docs/PROTOCOL.md shows the client that tests run.
func TestPageClient(t *testing.T) {
	b, err := os.ReadFile(root + "/docs/examples/client.ts")
	if err != nil {
		t.Fatal(err)
	}
	generated.Hold(t, root+"/docs", "client", "```ts\n"+string(b)+"```", *update)
}

// TestIDs holds that docs/entry.schema.json has the ids of a run's entries, as thread.RunOf takes them.
func TestIDs(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), root+"/thread/ids.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if clause, is := n.(*ast.CaseClause); is {
			for _, expr := range clause.List {
				name, is := text(expr, nil)
				if !is {
					t.Fatal("a case of thread/ids.go is no text")
				}
				if run, is := thread.RunOf("r1." + name); is && run == "r1" {
					want["."+name] = true
				} else if _, is := thread.RunOf("r1." + name + ".0"); is {
					want["."+name+".<n>"] = true
				}
			}
		}
		return true
	})
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	id := d.definition("stored")["properties"].(map[string]any)["id"].(map[string]any)
	for _, row := range id["x-ids"].([]any) {
		for _, name := range strings.Split(strings.ReplaceAll(row.(map[string]any)["id"].(string), "`", ""), ", ") {
			if of, is := strings.CutPrefix(name, "<runId>"); is {
				got[of] = true
			}
		}
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("ids of thread/ids.go (-), and of docs/entry.schema.json (+):\n%s", diff)
	}
}

// TestNames holds the list of docs/PAYLOADS.md of names that are exact in a payload, as thread/scan.go has them. The
// members that the schema describes are among them.
func TestNames(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(root + "/thread/scan.go")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)var meanings = .*?strings\\.Fields\\(`(.*?)`\\)").FindSubmatch(b)
	if m == nil {
		t.Fatal("thread/scan.go has no list of names")
	}
	names := strings.Fields(string(m[1]))
	generated.Hold(t, root+"/docs", "names", fill("`"+strings.Join(names, "`, `")+"`."), *update)
	for _, p := range d.types {
		if p.Def == "lease" {
			continue // on the thread of a box: nothing there is of a run
		}
		for _, name := range ordered(t, p.Def) {
			if !slices.Contains(names, name) {
				t.Errorf("%s.%s is not among the names of thread/scan.go", p.Type, name)
			}
		}
	}
}
