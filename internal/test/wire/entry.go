package wire

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// payloadType is a type of payload that the schema describes.
type payloadType struct {
	Type string // as a heading names it: chat, <prefix>.assistant, signal.setup.<step>
	Def  string // its name among $defs
	has  func(typ string) bool
}

// ref is a reference to a definition of the same document.
var ref = regexp.MustCompile(`^#/\$defs/([A-Za-z0-9_]+)$`)

// payloadTypes reads the types in the order in which $defs/payload has them.
func payloadTypes(schema map[string]any) (all []payloadType, err error) {
	defs, _ := schema["$defs"].(map[string]any)
	payload, _ := defs["payload"].(map[string]any)
	rules, _ := payload["allOf"].([]any)
	for i, rule := range rules {
		at := func(keys ...string) (s string) {
			v := rule
			for _, key := range keys {
				m, _ := v.(map[string]any)
				v = m[key]
			}
			s, _ = v.(string)
			return s
		}
		m := ref.FindStringSubmatch(at("then", "$ref"))
		if m == nil {
			return nil, fmt.Errorf("$defs/payload/allOf/%d has no reference", i)
		}
		p := payloadType{Type: at("if", "properties", "type", "const"), Def: m[1]}
		p.has = func(typ string) bool { return typ == p.Type }
		if pattern := at("if", "properties", "type", "pattern"); pattern != "" {
			r, err := regexp.Compile(pattern)
			if err != nil {
				return nil, err
			}
			p.Type, p.has = heading(pattern), r.MatchString
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		err = errors.New("$defs/payload has no types")
	}
	return all, err
}

// choice is the variable part of a pattern of types.
var choice = regexp.MustCompile(`\([a-z|]+\)`)

// heading returns the type that a pattern stands for, as a document names it.
func heading(pattern string) string {
	first := choice.ReplaceAllStringFunc(pattern[1:len(pattern)-1], func(s string) string {
		if s == "(pi|codex|claude)" {
			return "<prefix>"
		}
		return "<step>"
	})
	return regexp.MustCompile(`\\`).ReplaceAllString(first, "")
}

// CheckEntry returns what is wrong with an entry that a program of this project has posted, as a server returns it:
// its type is one that the schema describes, and it has the members of that type, and no others.
func CheckEntry(raw []byte) error {
	d, err := load()
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if err := d.strict.Validate(v); err != nil {
		return err
	}
	typ := typeOf(v)
	for _, p := range d.types {
		if p.has(typ) {
			return nil
		}
	}
	return fmt.Errorf("payload.type %q is not in docs/%s", typ, schemaFile)
}

// typeOf returns the type of an entry's payload; "" where it has none.
func typeOf(entry any) string {
	e, _ := entry.(map[string]any)
	p, _ := e["payload"].(map[string]any)
	typ, _ := p["type"].(string)
	return typ
}

// CheckEntries is CheckEntry for each line of NDJSON. Its error names the first bad line, from 1.
func CheckEntries(ndjson []byte) error {
	for i, line := range bytes.Split(bytes.TrimSpace(ndjson), []byte("\n")) {
		if err := CheckEntry(line); err != nil {
			return fmt.Errorf("line %d: %w\n%.1000s", i+1, err, line)
		}
	}
	return nil
}

// resolve returns a property, or what it refers to with its own description.
func (d *documents) resolve(property map[string]any) map[string]any {
	target, _ := property["$ref"].(string)
	m := ref.FindStringSubmatch(target)
	if m == nil {
		return property
	}
	return d.schema["$defs"].(map[string]any)[m[1]].(map[string]any)
}
