package deps_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ends are the methods by which a box ends: the machine at its provider, and its row or its lease.
var ends = []string{"Destroy", "Condemn", "Gone", "Release"}

// mayEnd are the packages that may call them: package reap, which decides, and what it calls.
var mayEnd = []string{"host/reap", "host/sandbox/daytona", "host/sandbox/local"}

// TestReapAlone holds that nobody but package reap deletes a box, or declares its row or its lease dead.
func TestReapAlone(t *testing.T) {
	type pkg struct {
		ImportPath, Dir, Export string
		GoFiles                 []string
	}
	const fields = "-json=ImportPath,Dir,Export,GoFiles"
	// As "make test" compiles them: another way would compile all of them once more.
	cmd := exec.Command("go", "list", "-trimpath", "-deps", "-export", fields, "./host/...", "./cmd/arbe")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Dir = "../../.."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, ours := map[string]string{}, []pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, module+"host/") || p.ImportPath == module+"cmd/arbe" {
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	imports := importer.ForCompiler(fset, "gc", open)
	calls := map[string]int{}
	for _, p := range ours {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := types.Info{Uses: map[*ast.Ident]types.Object{}}
		if _, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, &info); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		for id, used := range info.Uses {
			if !slices.Contains(ends, id.Name) || !ofBoxes(used) {
				continue
			}
			if calls[name]++; !slices.Contains(mayEnd, name) {
				t.Errorf("%s: %s is called outside of package reap, which alone decides that a box ends",
					fset.Position(id.Pos()), used)
			}
		}
	}
	if calls["host/reap"] == 0 {
		t.Error("package reap calls none of them: this test finds nothing")
	}
}

// ofBoxes reports whether an object is a method of ours about a box: its first parameter is a context.
func ofBoxes(o types.Object) bool {
	f, is := o.(*types.Func)
	if !is || o.Pkg() == nil || !strings.HasPrefix(o.Pkg().Path(), module) {
		return false
	}
	s := f.Signature()
	return s.Recv() != nil && s.Params().Len() > 0 && s.Params().At(0).Type().String() == "context.Context"
}
