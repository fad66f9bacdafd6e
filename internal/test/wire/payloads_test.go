package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/generated"
	"arbe.0sk.ar/runner/thread"
)

// TestPayloads holds docs/PAYLOADS.md: each type of payload with its members, as the schema has them, and an entry of a
// recorded run.
func TestPayloads(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	generated.Hold(t, root+"/docs", "payloads", d.payloads(t), *update)
}

// payloads returns the part of the page about the types of payloads.
func (d *documents) payloads(t *testing.T) string {
	t.Helper()
	recorded := threads(t)
	var out strings.Builder
	out.WriteString("| type | what |\n|---|---|\n")
	for _, p := range d.types {
		what, _, _ := strings.Cut(d.definition(p.Def)["description"].(string), ". ")
		anchor := strings.NewReplacer(".", "", "<", "", ">", "").Replace(p.Type)
		fmt.Fprintf(&out, "| [`%s`](#%s) | %s |\n", p.Type, anchor, strings.TrimSuffix(what, "."))
	}
	for _, p := range d.types {
		def := d.definition(p.Def)
		fmt.Fprintf(
			&out,
			"\n## `%s`\n\n%s\n\n| member | JSON | meaning |\n|---|---|---|\n",
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
		fmt.Fprintf(&out, "\n```json\n%s\n```\n", wrap(t, example, "", 116))
	}
	return out.String()
}

// definition returns a definition of the schema.
func (d *documents) definition(name string) map[string]any {
	return d.schema["$defs"].(map[string]any)[name].(map[string]any)
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
