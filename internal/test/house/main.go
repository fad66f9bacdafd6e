// Command house prints the largest files, functions and interfaces of the repository, the functions of the highest
// cyclomatic complexity, and the packages with the most files, exported names and imports. It judges nothing.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// top is how many lines each list has.
const top = 10

func main() {
	root := "."
	if len(os.Args) == 2 {
		root = os.Args[1]
	}
	h, err := read(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	h.print(os.Stdout)
}

// measure is a thing and its size.
type measure struct {
	name string
	n    int
}

// house has what was measured. Tests count as files alone.
type house struct {
	files, testFiles, functions, complex, interfaces []measure
	packages                                         map[string]*room
}

// room is a package: its shipped files, its exported names, and the packages that it imports.
type room struct {
	files, exported int
	imports         map[string]bool
}

// read measures all Go files below root.
func read(root string) (*house, error) {
	h := &house{packages: map[string]*room{}}
	fset := token.NewFileSet()
	return h, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		lines := fset.File(file.FileStart).LineCount()
		if strings.HasSuffix(name, "_test.go") {
			h.testFiles = append(h.testFiles, measure{path, lines})
			return nil
		}
		h.files = append(h.files, measure{path, lines})
		h.file(fset, filepath.Dir(path), file)
		return nil
	})
}

// file measures what a file declares.
func (h *house) file(fset *token.FileSet, dir string, file *ast.File) {
	r := h.packages[dir]
	if r == nil {
		r = &room{imports: map[string]bool{}}
		h.packages[dir] = r
	}
	r.files++
	for _, imp := range file.Imports {
		r.imports[imp.Path.Value] = true
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := fmt.Sprintf("%s %s", fset.Position(d.Pos()).Filename, d.Name.Name)
			h.functions = append(h.functions,
				measure{name, fset.Position(d.End()).Line - fset.Position(d.Pos()).Line + 1})
			h.complex = append(h.complex, measure{name, complexity(d)})
			if d.Recv == nil && d.Name.IsExported() {
				r.exported++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				h.spec(fset, r, spec)
			}
		}
	}
}

func (h *house) spec(fset *token.FileSet, r *room, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() {
			r.exported++
		}
		if i, is := s.Type.(*ast.InterfaceType); is {
			name := fmt.Sprintf("%s %s", fset.Position(s.Pos()).Filename, s.Name.Name)
			h.interfaces = append(h.interfaces, measure{name, i.Methods.NumFields()})
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				r.exported++
			}
		}
	}
}

// complexity is McCabe's: one, and one for each branch, loop, case and boolean operator; those of closures included.
func complexity(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

func (h *house) print(w io.Writer) {
	var files, exported, imports []measure
	for dir, r := range h.packages {
		files = append(files, measure{dir, r.files})
		exported = append(exported, measure{dir, r.exported})
		imports = append(imports, measure{dir, len(r.imports)})
	}
	for _, list := range []struct {
		title string
		all   []measure
	}{
		{"files, in lines", h.files},
		{"test files, in lines", h.testFiles},
		{"functions, in lines", h.functions},
		{"functions, by cyclomatic complexity", h.complex},
		{"interfaces, in methods", h.interfaces},
		{"packages, in files", files},
		{"packages, in exported names without methods", exported},
		{"packages, in imports", imports},
	} {
		fmt.Fprintf(w, "%s\n", list.title)
		slices.SortFunc(list.all, func(a, b measure) int {
			return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name))
		})
		for _, m := range list.all[:min(top, len(list.all))] {
			fmt.Fprintf(w, "%6d  %s\n", m.n, m.name)
		}
	}
}
