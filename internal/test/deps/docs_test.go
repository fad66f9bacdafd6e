package deps_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/surroundings"
)

const root = "../../.."

// document is a Markdown file.
type document struct {
	path string // below root, with slashes
	text string
}

// documents returns all Markdown files of the repository.
func documents(t *testing.T) (all []document) {
	t.Helper()
	walk(t, ".md", func(name, text string) { all = append(all, document{name, text}) })
	if len(all) < 10 {
		t.Fatalf("only %d documents", len(all))
	}
	return all
}

// walk calls f with each file of the repository whose name ends in suffix. It skips hidden folders, bin and
// node_modules.
func walk(t *testing.T, suffix string, f func(name, text string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." &&
			(strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || name == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, suffix):
			return nil
		}
		b, err := os.ReadFile(filepath.Join(root, name))
		f(name, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	// link is a link of Markdown; its target is a path, an anchor, both, or an address.
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// heading is a heading of Markdown.
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// TestDocLinks holds that each document can be reached from the README.
func TestDocLinks(t *testing.T) {
	docs := map[string]string{}
	for _, doc := range documents(t) {
		docs[doc.path] = doc.text
	}
	reached := map[string]bool{}
	next := []string{"README.md"}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		if text, is := docs[at]; is && !reached[at] {
			reached[at] = true
			for _, m := range link.FindAllStringSubmatch(text, -1) {
				target, _, _ := strings.Cut(m[1], "#")
				next = append(next, path.Join(path.Dir(at), target))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		if !reached[name] {
			t.Errorf("no link leads from README.md to %s", name)
		}
	}
}

var (
	// testName is the name of a test, benchmark or fuzz target in a document.
	testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]+\b`)
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Za-z0-9]+)\(`)
)

// TestDocTests looks for each test that a document names.
func TestDocTests(t *testing.T) {
	tests := map[string]bool{}
	walk(t, "_test.go", func(_, text string) {
		for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
			tests[m[1]] = true
		}
	})
	for _, doc := range documents(t) {
		for _, name := range testName.FindAllString(doc.text, -1) {
			if prefix := name == "TestFull" || name == "TestLarge"; !tests[name] && !prefix { // see the Makefile
				t.Errorf("%s names %s, and there is no such test", doc.path, name)
			}
		}
	}
}

// symptom is a heading, or the first cell of a row.
var symptom = regexp.MustCompile(`(?m)^(?:## |\| )([^|\n]+)`)

// TestDocSymptoms looks for each text that a heading or a row of docs/TROUBLESHOOTING.md quotes: a program prints it.
func TestDocSymptoms(t *testing.T) {
	var source strings.Builder
	walk(t, ".go", func(name, text string) {
		if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "internal/test/") {
			source.WriteString(text)
		}
	})
	text, err := os.ReadFile(root + "/docs/TROUBLESHOOTING.md")
	if err != nil {
		t.Fatal(err)
	}
	quotes := 0
	for _, h := range symptom.FindAllStringSubmatch(string(text), -1) {
		for i, quote := range strings.Split(h[1], "`") {
			if i%2 == 0 || strings.HasPrefix(quote, "arbe ") || strings.HasPrefix(quote, "--") {
				continue
			}
			if quotes++; !strings.Contains(source.String(), quote) {
				t.Errorf("docs/TROUBLESHOOTING.md quotes %q, and no program prints it", quote)
			}
		}
	}
	if quotes == 0 {
		t.Error("docs/TROUBLESHOOTING.md quotes nothing")
	}
}

var (
	// verdictWord is a constant of package outcome with a class of failure or a reason of an orphaned run.
	verdictWord = regexp.MustCompile(`(?m)^\t(?:Class|Reason)[A-Z][A-Za-z]+ += "([a-z_]+)"`)
	// verdictRow is a row of docs/OUTCOMES.md that explains one.
	verdictRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")
)

// TestOutcomes holds that docs/OUTCOMES.md explains each class of failure and each reason, and no others. The host
// alone gives the reasons box_gone and silent.
func TestOutcomes(t *testing.T) {
	source, err := os.ReadFile(root + "/outcome/outcome.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/OUTCOMES.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"box_gone", "silent"}
	for _, m := range verdictWord.FindAllStringSubmatch(string(source), -1) {
		want = append(want, m[1])
	}
	var got []string
	for _, m := range verdictRow.FindAllStringSubmatch(string(page), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the words of outcome and host (-), and of docs/OUTCOMES.md (+):\n%s", d)
	}
}

// ours is a variable of these programs, or of a service that they use.
var ours = regexp.MustCompile(`^(ARBE|DURABLE_STREAMS|DAYTONA|GITHUB)_[A-Z_]+$`)

// read returns the variables that a Go file reads: literals that are passed to a function named like Getenv or
// LookupEnv, and all literals that ours matches.
func read(t *testing.T, name, text string) (vars []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	literal := func(e ast.Expr) string {
		l, is := e.(*ast.BasicLit)
		if !is || l.Kind != token.STRING {
			return ""
		}
		s, err := strconv.Unquote(l.Value)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s := literal(n); ours.MatchString(s) {
				vars = append(vars, s)
			}
		case *ast.CallExpr:
			called := ""
			switch f := n.Fun.(type) {
			case *ast.Ident:
				called = f.Name
			case *ast.SelectorExpr:
				called = f.Sel.Name
			}
			if called = strings.ToLower(called); (called == "getenv" || called == "lookupenv") && len(n.Args) == 1 {
				if s := literal(n.Args[0]); s != "" {
					vars = append(vars, s)
				}
			}
		}
		return true
	})
	return vars
}

// row is a row of a table whose first cell names variables.
var (
	row      = regexp.MustCompile("(?m)^\\| (`[A-Z][A-Z_]+`(?:, `[A-Z][A-Z_]+`)*) \\|([^|]*)\\|")
	variable = regexp.MustCompile(`[A-Z][A-Z_]+`)
)

// TestEnvironment holds the tables of docs/ENVIRONMENT.md: each variable that the programs read stands there once, with
// the program that reads it. So does each of the Makefile in CONTRIBUTING.md. The tables have no others.
func TestEnvironment(t *testing.T) {
	shipped, err := os.ReadFile(root + "/docs/ENVIRONMENT.md")
	if err != nil {
		t.Fatal(err)
	}
	contributing, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tests, found := strings.Cut(string(contributing), "\n## Variables of tests")
	tests, _, ends := strings.Cut(tests, "\n## ")
	if !found || !ends {
		t.Fatal("CONTRIBUTING.md has no section Variables of tests")
	}
	listed := func(part string) map[string]string {
		by := map[string]string{}
		for _, m := range row.FindAllStringSubmatch(part, -1) {
			for _, name := range variable.FindAllString(m[1], -1) {
				if by[name] != "" {
					t.Errorf("%s stands in a page twice", name)
				}
				by[name] = m[2]
			}
		}
		return by
	}
	programs, develop := listed(string(shipped)), listed(tests)
	seen, seenInTests := map[string]bool{}, map[string]bool{}
	walk(t, ".go", func(name, text string) {
		testing := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/test/")
		for _, v := range read(t, name, text) {
			if testing {
				seenInTests[v] = true
				continue
			}
			seen[v] = true
			by, program := programs[v], "`arbe`"
			if dir, _, _ := strings.Cut(name, "/"); strings.HasPrefix(name, "cmd/arbe-pi-runner/") ||
				dir == "runner" ||
				dir == "harness" {
				program = "`arbe-pi-runner`"
			}
			if by == "" {
				t.Errorf("%s reads %s, and docs/ENVIRONMENT.md does not have it", name, v)
			} else if !strings.Contains(by, program) {
				t.Errorf("%s reads %s, and docs/ENVIRONMENT.md does not have %s for it", name, v, program)
			}
		}
	})
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range regexp.MustCompile(`\bARBE_[A-Z_]+`).FindAllString(string(makefile), -1) {
		seenInTests[v] = true
		if develop[v] == "" {
			t.Errorf("the Makefile has %s, and CONTRIBUTING.md does not", v)
		}
	}
	for v := range programs {
		if !seen[v] {
			t.Errorf("docs/ENVIRONMENT.md has %s, which no program reads", v)
		}
	}
	for v := range develop {
		if !seenInTests[v] {
			t.Errorf("CONTRIBUTING.md has %s, which no test reads", v)
		}
		if !slices.Contains(surroundings.Knobs, v) {
			t.Errorf("CONTRIBUTING.md has %s, and surroundings.Knobs lacks it", v)
		}
	}
}
