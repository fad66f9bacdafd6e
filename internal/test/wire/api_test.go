package wire

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"arbe.0sk.ar/runner/internal/test/generated"
)

// TestAPI holds docs/API.md: the routes, parameters, bodies and errors of docs/openapi.yaml.
func TestAPI(t *testing.T) {
	d, err := load()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", apiFile))
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	api := described{doc.Content[0]}
	text := api.routes() + api.parameters() + api.headers() + api.bodies(t) + d.errors()
	generated.Hold(t, root+"/docs", "api", text, *update)
}

// described is a value of the description, whose keys have an order.
type described struct{ *yaml.Node }

// at follows keys; a value without them is empty.
func (v described) at(keys ...string) described {
	for _, key := range keys {
		found := &yaml.Node{}
		for name, value := range v.pairs {
			if name == key {
				found = value.Node
			}
		}
		v = described{found}
	}
	return v
}

// pairs yields the keys and values of a mapping in their order.
func (v described) pairs(yield func(string, described) bool) {
	if v.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(v.Content); i += 2 {
		if !yield(v.Content[i].Value, described{v.Content[i+1]}) {
			return
		}
	}
}

// line returns the text at keys as one line of a table.
func (v described) line(keys ...string) string {
	text := strings.Join(strings.Fields(v.at(keys...).Value), " ")
	return strings.ReplaceAll(text, "|", `\|`)
}

// name returns the last part of what a reference names; "" for no reference.
func (v described) name() string {
	ref := v.at("$ref").Value
	return ref[strings.LastIndex(ref, "/")+1:]
}

// routes returns the table of requests.
func (v described) routes() string {
	var out strings.Builder
	out.WriteString("## Requests\n\n| request | meaning |\n|---|---|\n")
	for template, item := range v.at("paths").pairs {
		template = strings.NewReplacer("{", "<", "}", ">").Replace(template)
		for method, operation := range item.pairs {
			if method == "parameters" {
				continue
			}
			fmt.Fprintf(&out, "| `%s %s` | %s", strings.ToUpper(method), template, strings.TrimSpace(
				operation.line("summary")+". "+operation.line("description")))
			var names []string
			for _, p := range operation.at("parameters").Content {
				names = append(names, "`"+v.parameter(described{p}).line("name")+"`")
			}
			if len(names) > 0 {
				fmt.Fprintf(&out, " Takes %s.", strings.Join(names, ", "))
			}
			body := operation.at("requestBody", "content", "application/json", "schema")
			if name := body.name(); name != "" {
				fmt.Fprintf(&out, " Body: %s.", bodyLink(name))
			}
			out.WriteString(operation.answers())
			out.WriteString(" |\n")
		}
	}
	return out.String()
}

// answers returns the good answers of an operation.
func (v described) answers() string {
	var all []string
	for status, answer := range v.at("responses").pairs {
		if status >= "3" {
			continue
		}
		text := status + ", " + answer.line("description")
		if name := answer.at("content", "application/json", "schema").name(); name != "" {
			text += " (" + bodyLink(name) + ")"
		}
		all = append(all, text)
	}
	return " Answers: " + strings.Join(all, "; ") + "."
}

func bodyLink(name string) string { return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name)) }

// parameter returns a parameter, also one that is a reference.
func (v described) parameter(p described) described {
	if name := p.name(); name != "" {
		return v.at("components", "parameters", name)
	}
	return p
}

// parameters returns the table of parameters in queries and headers. One that two requests describe differently stands
// there twice.
func (v described) parameters() string {
	var out strings.Builder
	out.WriteString("\n## Parameters\n\n| parameter | in | meaning |\n|---|---|---|\n")
	var rows []string
	add := func(p described) {
		row := fmt.Sprintf("| `%s` | %s | %s |\n", p.line("name"), p.line("in"), p.line("description"))
		if p.line("in") != "path" && p.line("description") != "" && !slices.Contains(rows, row) {
			rows = append(rows, row)
			out.WriteString(row)
		}
	}
	for _, item := range v.at("paths").pairs {
		for _, operation := range item.pairs {
			for _, p := range operation.at("parameters").Content {
				add(v.parameter(described{p}))
			}
		}
	}
	return out.String()
}

func (v described) headers() string {
	var out strings.Builder
	out.WriteString("\n## Headers of answers\n\n| header | meaning |\n|---|---|\n")
	for name, header := range v.at("components", "headers").pairs {
		fmt.Fprintf(&out, "| `%s` | %s |\n", name, header.line("description"))
	}
	return out.String()
}

// bodies returns a table of members for each body that is an object.
func (v described) bodies(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("\n## Bodies\n")
	for name, schema := range v.at("components", "schemas").pairs {
		if len(schema.at("properties").Content) == 0 {
			if name == "Entry" {
				out.WriteString("\n### Entry\n\n[PROTOCOL.md](PROTOCOL.md#entries) has its members, " +
					"[PAYLOADS.md](PAYLOADS.md) those of its payload.\n")
			}
			continue
		}
		fmt.Fprintf(&out, "\n### %s\n\n", name)
		if text := schema.line("description"); text != "" {
			fmt.Fprintf(&out, "%s\n\n", fill(strings.ToUpper(text[:1])+strings.TrimSuffix(text[1:], ".")+"."))
		}
		out.WriteString("| member | JSON | meaning |\n|---|---|---|\n")
		var required []string
		for _, n := range schema.at("required").Content {
			required = append(required, n.Value)
		}
		for member, p := range schema.at("properties").pairs {
			kind := p.kind()
			if !slices.Contains(required, member) {
				kind += ", optional"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", member, kind, p.meaning())
		}
	}
	return out.String()
}

// kind returns the JSON type of a member.
func (v described) kind() string {
	typ := v.at("type")
	switch {
	case v.name() == "box" || v.name() == "parent":
		return "object"
	case v.name() == "ThreadId" || v.name() == "Offset":
		return "string"
	case v.name() != "":
		return bodyLink(v.name())
	case typ.Kind == yaml.SequenceNode:
		var all []string
		for _, n := range typ.Content {
			all = append(all, n.Value)
		}
		return strings.Join(all, " or ")
	case typ.Value == "array" && v.at("items").name() != "":
		return "array of " + bodyLink(v.at("items").name())
	case typ.Value != "":
		return typ.Value
	case len(v.at("oneOf").Content) > 0:
		var all []string
		for _, n := range v.at("oneOf").Content {
			all = append(all, described{n}.kind())
		}
		return strings.Join(slices.Compact(all), " or ")
	}
	return "string"
}

// meaning returns the description of a member, and its words and members.
func (v described) meaning() string {
	parts := []string{v.line("description")}
	for _, n := range v.at("oneOf").Content {
		parts = append(parts, described{n}.meaning())
	}
	var words []string
	for _, n := range v.at("enum").Content {
		words = append(words, "`"+n.Value+"`")
	}
	parts = append(parts, strings.Join(words, ", "))
	for _, in := range []described{v, v.at("items")} {
		var members []string
		for member, p := range in.at("properties").pairs {
			if value := p.at("const").Value; value != "" {
				members = append(members, fmt.Sprintf("`%s` is `%s`", member, value))
			} else if text := p.meaning(); text != "" {
				members = append(members, fmt.Sprintf("`%s`: %s", member, text))
			} else {
				members = append(members, "`"+member+"`")
			}
		}
		if len(members) > 0 {
			parts = append(parts, strings.Join(members, "; "))
		}
	}
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	return strings.Join(parts, ". ")
}

// codes are the errors that the description lists.
func (d *documents) codes() (all []errorCodes) {
	list, _ := node{d, "", d.api}.to("components", "schemas", "Error").members()["x-codes"].([]any)
	for _, v := range list {
		row := v.(map[string]any)
		e := errorCodes{
			Status:  fmt.Sprint(row["status"]),
			Meaning: strings.Join(strings.Fields(row["meaning"].(string)), " "),
		}
		for _, code := range row["codes"].([]any) {
			e.Codes = append(e.Codes, code.(string))
		}
		all = append(all, e)
	}
	return all
}

// errorCodes are codes of one status, and their meanings.
type errorCodes struct {
	Status  string
	Codes   []string
	Meaning string
}

func (d *documents) errors() string {
	var out strings.Builder
	out.WriteString("\n## Errors\n\n| status | code | meaning |\n|---|---|---|\n")
	for _, row := range d.codes() {
		fmt.Fprintf(&out, "| %s | `%s` | %s |\n", row.Status, strings.Join(row.Codes, "`, `"), row.Meaning)
	}
	return out.String()
}
