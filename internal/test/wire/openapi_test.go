package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestOpenAPI holds docs/openapi.yaml against the schema of OpenAPI 3.1, and compiles each schema in it.
func TestOpenAPI(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	meta, err := readJSON("testdata/openapi-3.1.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi-3.1", meta); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("openapi-3.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(d.api); err != nil {
		t.Error(err)
	}
	var visit func(n node)
	visit = func(n node) {
		switch v := n.now.(type) {
		case map[string]any:
			for key, value := range v {
				next := node{d, n.at + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1"), value}
				if target, is := value.(string); is && key == "$ref" && strings.HasPrefix(target, "#/") {
					if (node{d, "", d.api}).to(strings.Split(target[2:], "/")...).now == nil {
						t.Errorf("%s refers to %s", n.at, target)
					}
				}
				if _, is := value.(map[string]any); is && key == "schema" {
					if _, err := d.compile(n.schema()); err != nil {
						t.Error(err)
					}
				}
				visit(next)
			}
		case []any:
			for i, value := range v {
				visit(node{d, n.at + "/" + strconv.Itoa(i), value})
			}
		}
	}
	visit(node{d, "", d.api})
}

// TestRoutes holds that docs/openapi.yaml has the routes that host/server and the packages below it serve, but for the
// Durable Streams protocol.
func TestRoutes(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range d.paths {
		for method := range p.methods {
			if method != "parameters" {
				got = append(got, strings.ToUpper(method)+" "+p.template)
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(served(t), got); diff != "" {
		t.Errorf("routes of host/server (-), and of docs/openapi.yaml (+):\n%s", diff)
	}
}

// served returns the routes that are registered in host/server and below, those for profiles left out: they have a
// listener of their own.
func served(t *testing.T) (routes []string) {
	t.Helper()
	below, err := filepath.Glob(root + "/host/server/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(root + "/host/server/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, below...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range patterns(t, file) {
			method, path, has := strings.Cut(pattern, " ")
			if !has {
				method, path = http.MethodGet, pattern
			}
			if !strings.HasPrefix(path, "/debug/") {
				path = strings.Replace(path, "/api/stream/{stream}", "/api/stream/arbe-thread-{thread}", 1)
				path = strings.Replace(path, "/api/threads/{id}", "/api/threads/{thread}", 1)
				path = strings.Replace(path, "/api/environments/{id}", "/api/environments/{environment}", 1)
				routes = append(routes, method+" "+path)
			}
		}
	}
	if len(routes) < 5 {
		t.Fatalf("only %d routes: %v", len(routes), routes)
	}
	slices.Sort(routes)
	return routes
}

// pattern is one of a route with a method.
var pattern = regexp.MustCompile(`^[A-Z]+ /`)

// patterns returns the patterns that a file registers: its constant texts that look like one, and those without a
// method that it passes to Handle or HandleFunc.
func patterns(t *testing.T, file *ast.File) (all []string) {
	t.Helper()
	named := map[string]ast.Expr{}
	for _, of := range []string{"backup", "houses/houses"} {
		for name, value := range constants(t, "host/server/"+of+".go") {
			named[name] = &ast.BasicLit{Kind: token.STRING, Value: strconv.Quote(value)}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if len(n.Names) == 1 && len(n.Values) == 1 {
				named[n.Names[0].Name] = n.Values[0]
			}
		case *ast.AssignStmt:
			if name, is := n.Lhs[0].(*ast.Ident); is && len(n.Lhs) == 1 {
				named[name.Name] = n.Rhs[0]
			}
		case *ast.CallExpr:
			f, is := n.Fun.(*ast.SelectorExpr)
			if is && len(n.Args) == 2 && (f.Sel.Name == "HandleFunc" || f.Sel.Name == "Handle") {
				if p, is := text(n.Args[0], named); is && strings.HasPrefix(p, "/") {
					all = append(all, p)
				}
			}
		case ast.Expr:
			if p, is := text(n, named); is && pattern.MatchString(p) {
				all = append(all, p)
				return false
			}
		}
		return true
	})
	return all
}

// text returns the value of a constant expression of strings.
func text(expr ast.Expr, named map[string]ast.Expr) (string, bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		a, first := text(e.X, named)
		b, second := text(e.Y, named)
		return a + b, first && second && e.Op == token.ADD
	case *ast.SelectorExpr: // of another package
		return text(e.Sel, named)
	case *ast.Ident:
		value, has := named[e.Name]
		if !has {
			return "", false
		}
		return text(value, named)
	}
	return "", false
}

// TestCheckExchange holds that CheckExchange finds what an answer must not be.
func TestCheckExchange(t *testing.T) {
	const at = "/api/stream/arbe-thread-t1"
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	const (
		ndjson   = "application/x-ndjson"
		jsonType = "application/json"
		entry    = `{"id":"a","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":"x"}}`
		event    = "event: data\ndata:[" + entry + "]\n\nevent: control\n" +
			`data:{"streamNextOffset":"01","streamCursor":"1","upToDate":true}` + "\nid:01\n\n"
	)
	good := []Exchange{
		{"GET", at + "?offset=0", "", 200, header("Content-Type", ndjson, "Stream-Next-Offset", "01"), entry + "\n"},
		{"GET", at + "?offset=now&live=sse", "", 200, header("Content-Type", "text/event-stream"), event},
		{"GET", at, "", 404, header("Content-Type", jsonType), `{"error":{"code":"not_found","message":"x"}}`},
		{"POST", at, entry, 200, header("Content-Type", jsonType), `{"nextOffset":"01","appended":1,"duplicates":0}`},
		{"PATCH", at, "", 405, header(), ""},
		{"GET", "/other", "", 404, header(), "404 page not found\n"},
	}
	for _, x := range good {
		if err := CheckExchange(x); err != nil {
			t.Error(err)
		}
	}
	bad := map[string]func(x *Exchange){
		"an unknown parameter":      func(x *Exchange) { x.Target += "&more=1" },
		"a wrong parameter":         func(x *Exchange) { x.Target = at + "?offset=nowhere" },
		"an unknown status":         func(x *Exchange) { x.Status = 299 },
		"another content type":      func(x *Exchange) { x.Header = header("Content-Type", "text/html") },
		"a line that is no entry":   func(x *Exchange) { x.Answer = entry + "\n{}\n" },
		"an unknown path":           func(x *Exchange) { x.Target = "/api/other" },
		"an unknown method":         func(x *Exchange) { x.Method = "DELETE" },
		"a wrong header":            func(x *Exchange) { x.Header.Set("Stream-Up-To-Date", "yes") },
		"an error of another shape": func(x *Exchange) { *x = good[2]; x.Answer = `{"error":"x"}` },
		"no challenge":              func(x *Exchange) { *x = good[2]; x.Status = 401 },
		"an event of another shape": func(x *Exchange) { *x = good[1]; x.Answer = "event: control\ndata:{}\n\n" },
		"a wrong body":              func(x *Exchange) { *x = good[3]; x.Body = "{}" },
	}
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		x := good[0]
		x.Header = x.Header.Clone()
		bad[name](&x)
		if CheckExchange(x) == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
