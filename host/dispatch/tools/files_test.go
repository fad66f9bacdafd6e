package tools_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/dispatch/tools"
	"arbe.0sk.ar/runner/internal/test/generated"
)

// Adding a tool is one file and one line, as docs/ADD-A-TOOL.md has it: each tool is made in a file of its own, by a
// function that All calls. The page's example is hello.go.
func TestOneFile(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all *ast.FuncDecl
	makers := map[string]string{} // by function: its file
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		made := 0
		for _, d := range f.Decls {
			d, is := d.(*ast.FuncDecl)
			if is && d.Name.Name == "All" {
				all = d
			}
			if is && returnsTool(d) {
				makers[d.Name.Name] = name
				made++
			}
		}
		if made > 1 {
			t.Errorf("%s makes %d tools", name, made)
		}
	}
	calls := 0
	ast.Inspect(all, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is && makers[called(call)] != "" {
			delete(makers, called(call))
			calls++
		}
		return true
	})
	if calls != len(tools.Names()) || len(makers) > 0 {
		t.Errorf("All has %d tools, of %d files; not in it: %v", len(tools.Names()), calls, makers)
	}
	hello, err := os.ReadFile("hello.go")
	if err != nil {
		t.Fatal(err)
	}
	generated.Hold(t, "../../../docs", "hello", "```go\n"+string(hello)+"```", *update)
}

var update = flag.Bool("update", false, "write the generated parts of docs")

// docs/BOTS.md has the tools, as they are.
func TestToolTable(t *testing.T) {
	var out strings.Builder
	out.WriteString("| tool | what its model reads about it | default | acts | calls in an answer |\n")
	out.WriteString("|---|---|---|---|---|\n")
	for _, tool := range new(tools.Host).All() {
		usual, acts, most := "on", "", ""
		if tool.Asked {
			usual = "off"
		}
		if tool.Acts {
			acts = "acts"
		}
		if tool.Most > 0 {
			most = strconv.Itoa(tool.Most)
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %s |\n", tool.Name, tool.Description, usual, acts, most)
	}
	generated.Hold(t, "../../../docs", "tools", out.String(), *update)
}

// returnsTool reports whether a function returns a dispatch.Tool.
func returnsTool(d *ast.FuncDecl) bool {
	if d.Type.Results == nil || len(d.Type.Results.List) != 1 {
		return false
	}
	s, is := d.Type.Results.List[0].Type.(*ast.SelectorExpr)
	if !is || s.Sel.Name != "Tool" {
		return false
	}
	from, is := s.X.(*ast.Ident)
	return is && from.Name == "dispatch"
}

// called returns the name of the function that is called.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}
