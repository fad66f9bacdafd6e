package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/thread"
)

var update = flag.Bool("update", false, "write the generated part of docs/PROTOCOL.md")

const pagePath = root + "/docs/PROTOCOL.md"

func page(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Marks of the generated part of docs/PROTOCOL.md.
const (
	generatedBegin = "<!-- Generated from entry.schema.json and testdata/threads: " +
		"go test ./internal/test/wire -update -->\n"
	generatedEnd = "<!-- End of the generated part. -->\n"
)

// TestPagePayloads holds the generated part of docs/PROTOCOL.md: each type of payload with its members, as the schema
// has them, and an entry of a recorded run.
func TestPagePayloads(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	text := page(t)
	before, rest, begins := strings.Cut(text, generatedBegin)
	got, after, ends := strings.Cut(rest, generatedEnd)
	if !begins || !ends {
		t.Fatalf("docs/PROTOCOL.md has no generated part: want %s and %s", generatedBegin, generatedEnd)
	}
	want := "\n" + d.payloads(t)
	if got == want {
		return
	}
	if !*update {
		t.Fatalf(
			"run go test ./internal/test/wire -update; the page (-), what it should have (+):\n%s",
			cmp.Diff(got, want),
		)
	}
	if err := os.WriteFile(pagePath, []byte(before+generatedBegin+want+generatedEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// payloads returns the part of the page about the types of payloads.
func (d *documents) payloads(t *testing.T) string {
	t.Helper()
	recorded := threads(t)
	var out strings.Builder
	for _, p := range d.types {
		def := d.schema["$defs"].(map[string]any)[p.Def].(map[string]any)
		fmt.Fprintf(
			&out,
			"#### `%s`\n\n%s\n\n| member | JSON | meaning |\n|---|---|---|\n",
			p.Type,
			fill(def["description"].(string)),
		)
		example := largest(t, recorded, p.has)
		required, _ := def["required"].([]any)
		for _, name := range ordered(t, p.Def) {
			if name == "type" {
				continue
			}
			property := def["properties"].(map[string]any)[name].(map[string]any)
			described := d.resolve(property)
			kind := strings.Join(jsonTypes(described), " or ")
			if kind == "" {
				kind = "any"
			}
			if !slices.Contains(required, any(name)) {
				kind += ", optional"
			}
			meaning, _ := described["description"].(string)
			if words, is := described["enum"].([]any); is && name != "harness" {
				meaning += ": " + quoted(words)
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", name, kind, meaning)
		}
		fmt.Fprintf(&out, "\n```json\n%s\n```\n\n", wrap(t, example, "", 116))
	}
	return out.String()
}

func quoted(words []any) string {
	var all []string
	for _, word := range words {
		all = append(all, "`"+word.(string)+"`")
	}
	return strings.Join(all, ", ")
}

// fill breaks a text into lines.
func fill(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > 118 {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}

// ordered returns the members of a definition in the schema's order, which a map does not keep.
func ordered(t *testing.T, def string) (names []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", schemaFile))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]struct{ Properties json.RawMessage } `json:"$defs"`
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	for _, m := range members(t, schema.Defs[def].Properties) {
		names = append(names, m.name)
	}
	return names
}

// member is one of an object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of an object in their order.
func members(t *testing.T, object json.RawMessage) (all []member) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatal(err)
		}
		all = append(all, member{name.(string), value})
	}
	return all
}

// firstThread is the recorded thread whose entries are preferred as examples.
const firstThread = "pushed.ndjson"

// largest returns the recorded entry of a type that has the most members, and is none of a bot where lines have the
// type; of several, one of firstThread.
func largest(t *testing.T, recorded map[string][][]byte, has func(string) bool) (example []byte) {
	t.Helper()
	most := 0
	for _, name := range append([]string{firstThread}, sorted(recorded)...) {
		for _, line := range recorded[name] {
			e, err := thread.ParseStored(line)
			if err != nil {
				t.Fatal(err)
			}
			f, err := thread.Scan(e.Payload)
			if err != nil {
				t.Fatal(err)
			}
			bots := f.Reaction && !f.Signal()
			if n := len(members(t, e.Payload)); has(f.Type) && !bots && n > most {
				most, example = n, line
			}
		}
	}
	return example
}

func sorted[V any](m map[string]V) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// longest is how much of a text an example shows, in bytes.
const longest = 90

// wrap returns JSON in lines of at most width columns, as many members on each as fit. Long texts are shortened.
func wrap(t *testing.T, raw json.RawMessage, indent string, width int) string {
	t.Helper()
	raw = bytes.TrimSpace(raw)
	if raw[0] == '"' && len(raw) > longest {
		return strings.TrimRight(string(raw[:longest]), `\`) + `…"`
	}
	if len(indent)+len(raw) <= width || raw[0] != '{' && raw[0] != '[' {
		return string(raw)
	}
	var parts []string
	inside := indent + "  "
	if raw[0] == '{' {
		for _, m := range members(t, raw) {
			name := strconv.Quote(m.name) + ":"
			parts = append(parts, name+wrap(t, m.value, inside+strings.Repeat(" ", len(name)), width))
		}
	} else {
		var values []json.RawMessage
		if err := json.Unmarshal(raw, &values); err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			parts = append(parts, wrap(t, v, inside, width))
		}
	}
	var lines []string
	line := ""
	for i, part := range parts {
		if i < len(parts)-1 {
			part += ","
		}
		if strings.Contains(part, "\n") { // its lines begin deeper than they have to where a name stands before them
			part = shift(part, inside)
		}
		first, _, many := strings.Cut(part, "\n")
		if line != "" && (many || len(line)+len(first) > width) {
			lines, line = append(lines, line), ""
		}
		if line == "" {
			line = inside
		}
		line += part
		if many {
			lines, line = append(lines, line), ""
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return string(raw[0]) + "\n" + strings.Join(lines, "\n") + "\n" + indent + string(raw[len(raw)-1])
}

// shift gives the lines behind the first one of a part the indent of its parent.
func shift(part, indent string) string {
	lines := strings.Split(part, "\n")
	last := lines[len(lines)-1]
	deep := len(last) - len(strings.TrimLeft(last, " "))
	for i := 1; i < len(lines); i++ {
		lines[i] = indent + strings.TrimPrefix(lines[i], strings.Repeat(" ", deep))
	}
	return strings.Join(lines, "\n")
}

// TestPageRoutes holds that docs/PROTOCOL.md has the routes of docs/openapi.yaml.
func TestPageRoutes(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, p := range d.paths {
		for method := range p.methods {
			if method != "parameters" {
				want = append(
					want,
					strings.ToUpper(method)+" "+strings.NewReplacer("{", "<", "}", ">").Replace(p.template),
				)
			}
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\|").FindAllStringSubmatch(page(t), -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes of docs/openapi.yaml (-), and of docs/PROTOCOL.md (+):\n%s", diff)
	}
}

// Ways in which the source names an error's status and code.
var errorForms = []*regexp.Regexp{
	regexp.MustCompile(`(?:[rR]efuse|say)\(\s*(?:w,\s*)?http\.Status(\w+),\s*"([a-z_]+)"`),
	regexp.MustCompile(`\{\s*(?:[\w.()*\[\]]+, )?http\.Status(\w+), "([a-z_]+)"`), // rows of tables
	regexp.MustCompile(`p\.status, p\.code = http\.Status(\w+), "([a-z_]+)"`),
}

// errorRow is a row of the page that has a status and its codes.
var errorRow = regexp.MustCompile("(?m)^\\| ([0-9]{3}) \\| (`[a-z_]+`(?:, `[a-z_]+`)*) \\|")

// statuses are those of errors, by their names in net/http.
var statuses = map[string]int{
	"BadRequest": 400, "Unauthorized": 401, "Forbidden": 403, "NotFound": 404, "MethodNotAllowed": 405, "Conflict": 409,
	"Gone": 410, "RequestEntityTooLarge": 413, "UnsupportedMediaType": 415, "TooManyRequests": 429,
	"InternalServerError": 500, "NotImplemented": 501, "BadGateway": 502, "ServiceUnavailable": 503,
	"GatewayTimeout": 504, "InsufficientStorage": 507,
}

// TestPageErrors holds that docs/PROTOCOL.md has each status and code with which host/server, host/proxy and
// host/httpd answer.
func TestPageErrors(t *testing.T) {
	want := map[string]bool{}
	for _, dir := range []string{"host/server", "host/server/*", "host/proxy", "host/httpd"} {
		names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			if strings.Contains(string(b), `const panicAnswer = `+"`"+`{"error":{"code":"internal"`) {
				want["500 internal"] = true
			}
			for _, form := range errorForms {
				for _, m := range form.FindAllStringSubmatch(string(b), -1) {
					if statuses[m[1]] == 0 {
						t.Errorf("%s: unknown status %s", name, m[1])
					}
					want[fmt.Sprint(statuses[m[1]], " ", m[2])] = true
				}
			}
		}
	}
	got := map[string]bool{}
	for _, m := range errorRow.FindAllStringSubmatch(page(t), -1) {
		for _, code := range strings.Split(strings.ReplaceAll(m[2], "`", ""), ", ") {
			got[m[1]+" "+code] = true
		}
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("errors of the source (-), and of docs/PROTOCOL.md (+):\n%s", diff)
	}
}

// TestPageIDs holds that docs/PROTOCOL.md has the ids of a run's entries, as thread.RunOf takes them.
func TestPageIDs(t *testing.T) {
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
	got := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| (`<runId>\\.[^|]*) \\|").FindAllStringSubmatch(page(t), -1) {
		for _, id := range strings.Split(strings.ReplaceAll(m[1], "`", ""), ", ") {
			got[strings.TrimPrefix(id, "<runId>")] = true
		}
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("ids of thread/ids.go (-), and of docs/PROTOCOL.md (+):\n%s", diff)
	}
}

// TestPageNames holds that docs/PROTOCOL.md has the names that are exact in a payload, as thread/scan.go lists them,
// and that the members that the schema describes are among them.
func TestPageNames(t *testing.T) {
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
	want := map[string]bool{}
	for _, name := range strings.Fields(string(m[1])) {
		want[name] = true
	}
	_, list, found := strings.Cut(page(t), "exact at a payload's top level:\n\n")
	list, _, ends := strings.Cut(list, "\n\n")
	if !found || !ends {
		t.Fatal("docs/PROTOCOL.md has no list of exact names")
	}
	got := map[string]bool{}
	for _, name := range strings.Fields(strings.NewReplacer(",", "", "`", "", ".", "").Replace(list)) {
		got[name] = true
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("names of thread/scan.go (-), and of docs/PROTOCOL.md (+):\n%s", diff)
	}
	for _, p := range d.types {
		if p.Def == "lease" {
			continue // on the thread of a box: nothing there is of a run
		}
		for _, name := range ordered(t, p.Def) {
			if !want[name] {
				t.Errorf("%s.%s is not among the names of thread/scan.go", p.Type, name)
			}
		}
	}
}
