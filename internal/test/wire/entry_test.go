package wire

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

const root = "../../.."

// threads are recordings of threads: each entry of a real run, as arbe serve gave it.
func threads(t *testing.T) map[string][][]byte {
	t.Helper()
	names, err := filepath.Glob(root + "/testdata/threads/*.ndjson")
	if err != nil || len(names) == 0 {
		t.Fatalf("no recorded threads: %v", err)
	}
	all := map[string][][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(name)] = bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	}
	return all
}

// TestRecordedThreads holds the recorded threads against the schema. Each type that it describes is in one of them.
func TestRecordedThreads(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for name, lines := range threads(t) {
		for _, line := range lines {
			if err := CheckEntry(line); err != nil {
				t.Errorf("%s: %v\n%.1000s", name, err, line)
			}
			e, err := thread.ParseStored(line)
			if err != nil {
				t.Fatal(err)
			}
			f, err := thread.Scan(e.Payload)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, p := range d.types {
				seen[p.Def] = seen[p.Def] || p.has(f.Type)
			}
		}
	}
	for _, p := range d.types {
		if !seen[p.Def] {
			t.Errorf("no recorded thread has a %s", p.Type)
		}
	}
}

// TestRecordedSessions holds the entries of each recorded session against the schema.
func TestRecordedSessions(t *testing.T) {
	for name, content := range recorded.Sessions(t, root+"/testdata") {
		e := mirror.Encoder{
			Namer:  mirror.Namer{Dialect: recorded.Dialect(t, name)},
			Redact: redact.New(nil, nil),
		}
		for i, line := range bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
			entry, is := e.Encode(session.Line{Start: session.Position{Index: i}, Data: line})
			if !is {
				t.Errorf("%s:%d has no entry", name, i+1)
			} else if err := CheckEntry(entry.AppendJSON(nil)); err != nil {
				t.Errorf("%s:%d: %v\n%.1000s", name, i+1, err, entry.AppendJSON(nil))
			}
		}
	}
}

// TestStrict holds that CheckEntry finds a member that is missing, unknown or of another type, and an unknown type.
func TestStrict(t *testing.T) {
	entry := func(payload string) []byte {
		return []byte(`{"id":"a","ts":"2026-01-01T00:00:00.000Z","payload":` + payload + `}`)
	}
	if err := CheckEntry(entry(`{"type":"chat","text":"x"}`)); err != nil {
		t.Error(err)
	}
	for _, payload := range []string{
		`{"type":"chat"}`, `{"type":"chat","text":7}`, `{"type":"chat","text":"x","more":1}`, `{"text":"x"}`,
		`{"type":"signal.thread.other"}`, `{"type":"signal.setup.other","name":"x","durationMs":1}`, `7`,
		`{"type":"signal.thread.status_changed","status":"orphaned"}`,
	} {
		if CheckEntry(entry(payload)) == nil {
			t.Errorf("%s is valid", payload)
		}
	}
}

// structs are the Go types of the payloads that the schema describes. Those of mirrored lines share one.
var structs = map[string]reflect.Type{
	"chat":                  reflect.TypeFor[thread.Chat](),
	"claimed":               reflect.TypeFor[thread.Claim](),
	"status_changed":        reflect.TypeFor[thread.StatusChanged](),
	"setup":                 reflect.TypeFor[thread.SetupStep](),
	"sandbox":               reflect.TypeFor[thread.SandboxOf](),
	"session_started":       reflect.TypeFor[thread.Started](),
	"heartbeat":             reflect.TypeFor[thread.Heartbeat](),
	"pi_waiting":            reflect.TypeFor[thread.Waiting](),
	"chat_refused":          reflect.TypeFor[thread.ChatRefused](),
	"agent_asked":           reflect.TypeFor[thread.Asked](),
	"end_requested":         reflect.TypeFor[thread.EndRequested](),
	"cancel_requested":      reflect.TypeFor[thread.Cancel](),
	"pi_failed":             reflect.TypeFor[thread.Failed](),
	"pi_session_orphaned":   reflect.TypeFor[thread.Orphaned](),
	"push":                  reflect.TypeFor[thread.Pushed](),
	"sync":                  reflect.TypeFor[thread.Synced](),
	"sandbox_kept":          reflect.TypeFor[thread.SandboxKept](),
	"sandbox_released":      reflect.TypeFor[thread.SandboxReleased](),
	"agent_spawn":           reflect.TypeFor[thread.AgentSpawn](),
	"child_finished":        reflect.TypeFor[thread.ChildFinished](),
	"task_waits":            reflect.TypeFor[thread.TaskWaits](),
	"sandbox_resumed":       reflect.TypeFor[thread.SandboxResumed](),
	"lease":                 reflect.TypeFor[lease.Record](),
	"assistant":             reflect.TypeFor[thread.Line](),
	"tool_result":           reflect.TypeFor[thread.Line](),
	"session":               reflect.TypeFor[thread.Line](),
	"exec_started":          reflect.TypeFor[thread.ExecStarted](),
	"exec_running":          reflect.TypeFor[thread.ExecRunning](),
	"exec_output":           reflect.TypeFor[thread.ExecOutput](),
	"exec_finished":         reflect.TypeFor[thread.ExecFinished](),
	"exec_cancel_requested": reflect.TypeFor[thread.ExecCancel](),
	"decided":               reflect.TypeFor[thread.Decided](),
	"reaction_claimed":      reflect.TypeFor[thread.ReactionClaimed](),
	"reaction_alive":        reflect.TypeFor[thread.ReactionAlive](),
	"delta":                 reflect.TypeFor[thread.Delta](),
	"reaction_finished":     reflect.TypeFor[thread.ReactionFinished](),
	"reaction_cancel":       reflect.TypeFor[thread.ReactionCancel](),
}

// replies are the Go types of a bot's entries that have the types of mirrored lines.
var replies = map[string]reflect.Type{
	"assistant": reflect.TypeFor[thread.Round](), "tool_result": reflect.TypeFor[thread.CallResult](),
}

// inner are the Go types of objects within payloads.
var inner = map[string]reflect.Type{
	"box": reflect.TypeFor[thread.Sandbox](), "parent": reflect.TypeFor[thread.Parent](),
	"place": reflect.TypeFor[thread.SessionRef](), "reaction": reflect.TypeFor[thread.InReaction](),
	"root": reflect.TypeFor[thread.Root](),
}

// TestSchemaHasTheFields holds that the schema has the members of the Go types, and no others, with their JSON types;
// one that is always written is required.
func TestSchemaHasTheFields(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	defs := d.schema["$defs"].(map[string]any)
	if got, want := slices.Sorted(maps.Keys(defs["stored"].(map[string]any)["properties"].(map[string]any))),
		[]string{"at", "authorId", "id", "payload", "ts"}; !slices.Equal(got, want) {
		t.Errorf("the entry has %v, want %v", got, want)
	}
	lines := map[string]bool{}
	described := maps.Clone(inner)
	for _, p := range d.types {
		typ := structs[p.Def]
		if typ == nil {
			t.Errorf("%s has no Go type", p.Type)
			continue
		}
		described[p.Def] = typ
	}
	for name, typ := range described {
		def := defs[name].(map[string]any)
		fields := fieldsOf(typ)
		if typ == reflect.TypeFor[thread.Line]() || name == "chat" { // each has a part of a line's members
			some := fieldsOf(reflect.TypeFor[thread.Line]())
			for member := range def["properties"].(map[string]any) {
				lines[member] = true
				if f, is := some[member]; is && fields[member].typ == nil {
					fields[member] = f
				}
			}
			if reply := replies[name]; reply != nil {
				maps.Copy(fields, fieldsOf(reply))
			}
			for member := range fields {
				if def["properties"].(map[string]any)[member] == nil && name != "chat" {
					delete(fields, member)
				}
			}
		}
		compare(t, d, name, def, fields, name == "assistant" || name == "tool_result" || name == "session")
	}
	for member := range fieldsOf(reflect.TypeFor[thread.Line]()) {
		if !lines[member] {
			t.Errorf("no type of a mirrored line has %s", member)
		}
	}
}

// TestSummaryHasTheFields holds that docs/openapi.yaml has the members of a summary.
func TestSummaryHasTheFields(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	schemas := node{d, "", d.api}.to("components", "schemas")
	for name, typ := range map[string]reflect.Type{
		"Summary": reflect.TypeFor[thread.Summary](), "SummaryPage": reflect.TypeFor[thread.SummaryPage](),
	} {
		compare(t, d, name, schemas.to(name).members(), fieldsOf(typ), false)
	}
}

// field is a member of a Go type in JSON.
type field struct {
	typ      reflect.Type
	optional bool
}

// fieldsOf returns the members of a struct, those of embedded ones among them.
func fieldsOf(typ reflect.Type) map[string]field {
	all := map[string]field{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			in, optional := f.Type, f.Type.Kind() == reflect.Pointer
			if optional {
				in = in.Elem()
			}
			for name, f := range fieldsOf(in) {
				all[name] = field{f.typ, f.optional || optional}
			}
		default:
			all[name] = field{f.Type, strings.Contains(options, "omitempty")}
		}
	}
	return all
}

// compare compares a definition with the members that a Go type has.
func compare(t *testing.T, d *documents, name string, def map[string]any, fields map[string]field, anyOptional bool) {
	t.Helper()
	properties := def["properties"].(map[string]any)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(fields)), slices.Sorted(maps.Keys(properties))); diff != "" {
		t.Errorf("%s: the Go type's members (-), the schema's (+):\n%s", name, diff)
		return
	}
	required, _ := def["required"].([]any)
	for member, f := range fields {
		always := slices.Contains(required, any(member))
		if always == f.optional && !anyOptional {
			t.Errorf("%s.%s: required is %t in the schema, and the Go type omits it when empty: %t",
				name, member, always, f.optional)
		}
		property := d.resolve(properties[member].(map[string]any))
		if got, want := jsonTypes(property), jsonType(f.typ); len(got) > 0 && want != "" &&
			!slices.Contains(got, want) {
			t.Errorf("%s.%s is %v in the schema, and %s of the Go type is a JSON %s", name, member, got, f.typ, want)
		}
		object := f.typ
		if object.Kind() == reflect.Pointer {
			object = object.Elem()
		}
		if in, is := property["properties"].(map[string]any); is && object.Kind() == reflect.Struct && len(in) > 0 {
			compare(t, d, name+"."+member, property, fieldsOf(object), false)
		}
	}
}

// jsonType returns the JSON type of a Go type; "" for one that may be any.
func jsonType(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.Pointer:
		return jsonType(typ.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Struct:
		return "object"
	case reflect.Slice:
		if typ.Elem().Kind() != reflect.Uint8 {
			return "array"
		}
	}
	return ""
}

// jsonTypes returns the JSON types that a property may have; nil for any.
func jsonTypes(property map[string]any) (all []string) {
	switch typ := property["type"].(type) {
	case string:
		return []string{typ}
	case []any:
		for _, one := range typ {
			all = append(all, one.(string))
		}
		return all
	}
	if property["enum"] != nil {
		return []string{"string"}
	}
	if _, is := property["const"].(string); is {
		return []string{"string"}
	}
	return nil
}

// constants returns the values of string constants of a Go file, by their names.
func constants(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		for i, ident := range spec.Names {
			if i >= len(spec.Values) {
				break
			}
			if lit, is := spec.Values[i].(*ast.BasicLit); is && lit.Kind == token.STRING {
				value, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				all[ident.Name] = value
			}
		}
		return true
	})
	return all
}

// TestSchemaHasTheTypes holds that the schema describes the types of payloads that the source names, and no others, and
// lists their words.
func TestSchemaHasTheTypes(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	steps := map[string]bool{}
	for _, name := range []string{
		"thread/payload.go", "thread/dispatch.go", "thread/exec.go", "thread/reaction.go", "host/lease/lease.go",
	} {
		for constant, value := range constants(t, name) {
			switch {
			case strings.HasPrefix(value, "pi."): // of replies of bots
			case strings.HasPrefix(constant, "Type"):
				want = append(want, value)
			case constant == "KindAssistant", constant == "KindToolResult", constant == "KindSession":
				want = append(want, "<prefix>."+value)
			case strings.HasPrefix(constant, "Step"):
				steps[value] = true
			}
		}
	}
	want = append(want, thread.SetupType("<step>"))
	var got []string
	for _, p := range d.types {
		got = append(got, p.Type)
		for step := range steps {
			if p.Def == "setup" && !p.has(thread.SetupType(step)) {
				t.Errorf("the schema has no step %s", step)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the source's types (-), the schema's (+):\n%s", diff)
	}
	d.hasWords(t, "outcome/outcome.go", "Class", "pi_failed", "errorClass")
	d.hasWords(t, "outcome/outcome.go", "Stop", "stopReason", "")
}

// hasWords holds that a list of words in the schema has the constants of a file whose names begin with prefix.
func (d *documents) hasWords(t *testing.T, file, prefix, def, member string) {
	t.Helper()
	property := d.schema["$defs"].(map[string]any)[def].(map[string]any)
	if member != "" {
		property = property["properties"].(map[string]any)[member].(map[string]any)
	}
	var got, want []string
	for _, word := range property["enum"].([]any) {
		got = append(got, word.(string))
	}
	for constant, value := range constants(t, file) {
		if strings.HasPrefix(constant, prefix) {
			want = append(want, value)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s of %s (-), %s.%s of the schema (+):\n%s", prefix, file, def, member, diff)
	}
}
