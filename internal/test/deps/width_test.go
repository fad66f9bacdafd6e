package deps_test

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// tab is the number of columns of a tab in Go code, the default of golines.
const tab = 4

// TestCodeLines holds the width of the lines of Go code. Excepted are rows of tables, lines of raw strings, and fields
// with tags.
func TestCodeLines(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		wide, err := wideLines(path, src)
		for _, n := range wide {
			t.Errorf("%s:%d has more than %d columns", path, n, widest)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// wideLines returns the numbers of a file's lines that have more columns than widest and are not excepted.
func wideLines(path string, src []byte) (wide []int, err error) {
	lines := bufio.NewScanner(bytes.NewReader(src))
	lines.Buffer(nil, len(src)+1)
	for n := 1; lines.Scan(); n++ {
		if utf8.RuneCount(lines.Bytes())+(tab-1)*bytes.Count(lines.Bytes(), []byte("\t")) > widest {
			wide = append(wide, n)
		}
	}
	if len(wide) == 0 || lines.Err() != nil {
		return nil, lines.Err()
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	excepted := map[int]bool{}
	except := func(node ast.Node) {
		for n := fset.Position(node.Pos()).Line; n <= fset.Position(node.End()).Line; n++ {
			excepted[n] = true
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Field:
			if node.Tag != nil {
				excepted[fset.Position(node.Tag.Pos()).Line] = true
			}
		case *ast.BasicLit:
			if strings.HasPrefix(node.Value, "`") {
				except(node)
			}
		case *ast.CompositeLit:
			for _, row := range node.Elts {
				if isRow(fset, row) {
					except(row)
				}
			}
		}
		return true
	})
	kept := wide[:0]
	for _, n := range wide {
		if !excepted[n] {
			kept = append(kept, n)
		}
	}
	return kept, nil
}

// isRow reports whether an element of a composite literal is a literal itself, of several values, on one line.
func isRow(fset *token.FileSet, element ast.Expr) bool {
	if kv, is := element.(*ast.KeyValueExpr); is {
		element = kv.Value
	}
	literal, is := element.(*ast.CompositeLit)
	return is && len(literal.Elts) > 1 && fset.Position(literal.Pos()).Line == fset.Position(literal.End()).Line
}

// TestWideLines holds what is excepted.
func TestWideLines(t *testing.T) {
	long := strings.Repeat("x", widest)
	for name, tt := range map[string]struct {
		src  string
		wide int
	}{
		"short":                {"var a = 1", 0},
		"comment":              {"// " + long, 1},
		"statement":            {"var a = f(" + long + ")", 1},
		"tabs count four":      {strings.Repeat("\t", widest/tab) + "// x", 1},
		"tag":                  {"type T struct {\n\tA int `json:\"" + long + "\"`\n}", 0},
		"raw string":           {"var a = `\n" + long + "`", 0},
		"row":                  {"var a = []T{\n\t{1, \"" + long + "\"},\n}", 0},
		"row with a key":       {"var a = map[string]T{\n\t\"k\": {1, \"" + long + "\"},\n}", 0},
		"row of several lines": {"var a = []T{\n\t{\n\t\t1, \"" + long + "\",\n\t},\n}", 1},
		"row of one value":     {"var a = []T{\n\t{\"" + long + "\"},\n}", 1},
		"element":              {"var a = []string{\n\t\"" + long + "\",\n}", 1},
	} {
		wide, err := wideLines("a.go", []byte("package p\n\n"+tt.src+"\n"))
		if err != nil || len(wide) != tt.wide {
			t.Errorf("%s: %v, %v; want %d", name, wide, err, tt.wide)
		}
	}
}
