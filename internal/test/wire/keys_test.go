package wire

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/generated"
)

// TestKeys holds the tables of keys: of environments and of settings, as their schemas describe them.
func TestKeys(t *testing.T) {
	const head = " | JSON | meaning |\n|---|---|---|\n"
	recipe := openKeys(t, "environment.schema.json")
	recipe.list("", recipe.root)
	generated.Hold(t, root+"/docs", "recipe", "| key"+head+recipe.rows.String(), *update)

	settings := openKeys(t, "dispatch.schema.json")
	for _, of := range []string{"agents bot", "members member", "houses house", "threads thread"} {
		table, def, _ := strings.Cut(of, " ")
		settings.list("", settings.at("#/$defs/"+def))
		fmt.Fprintf(&settings.out, "`%s.config`:\n\n| key%s%s\n", table, head, settings.rows.String())
		settings.rows.Reset()
	}
	generated.Hold(t, root+"/docs", "settings", settings.out.String(), *update)
}

// keys are the keys that a schema describes.
type keys struct {
	t         *testing.T
	root      json.RawMessage
	rows, out strings.Builder
}

func openKeys(t *testing.T, file string) *keys {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", file))
	if err != nil {
		t.Fatal(err)
	}
	return &keys{t: t, root: b}
}

// at returns what a reference within the schema names.
func (k *keys) at(ref string) json.RawMessage {
	k.t.Helper()
	v := k.root
	for key := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		v = within(k.t, v, key)
	}
	return v
}

// list appends a row for each key below a schema of an object, in the schema's order.
func (k *keys) list(prefix string, schema json.RawMessage) {
	k.t.Helper()
	if all := within(k.t, schema, "properties"); all != nil {
		for _, m := range members(k.t, all) {
			k.one(prefix+m.name, m.value)
		}
	}
}

// one appends the row of a key, and those of the keys below it.
func (k *keys) one(path string, schema json.RawMessage) {
	k.t.Helper()
	var s struct {
		Ref         string `json:"$ref"`
		Description string
		Type        string
		Enum        []any
		Items       json.RawMessage
		Each        json.RawMessage `json:"additionalProperties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		k.t.Fatal(err)
	}
	if s.Ref != "" {
		described := s.Description
		target := k.at(s.Ref)
		if err := json.Unmarshal(target, &s); err != nil {
			k.t.Fatal(err)
		}
		if described != "" {
			s.Description = described
		}
		schema = target
	}
	meaning := s.Description
	if len(s.Enum) > 0 && !strings.Contains(meaning, s.Enum[0].(string)+":") {
		meaning = strings.TrimSpace(meaning + " " + quoted(s.Enum) + ".")
	}
	if meaning != "" || within(k.t, schema, "properties") == nil {
		fmt.Fprintf(&k.rows, "| `%s` | %s | %s |\n", path, s.Type, meaning)
	}
	k.list(path+".", schema)
	k.list(path+"[].", s.Items)
	if len(s.Each) > 0 && s.Each[0] == '{' {
		if within(k.t, s.Each, "$ref") != nil {
			k.list(path+".ID.", k.at(plain(k.t, within(k.t, s.Each, "$ref"))))
		}
		if described := plain(k.t, within(k.t, s.Each, "description")); described != "" {
			fmt.Fprintf(&k.rows, "| `%s.NAME` | object | %s |\n", path, described)
		}
		k.list(path+".NAME.", s.Each)
	}
}

// within returns a member of an object; nil where it has none.
func within(t *testing.T, object json.RawMessage, name string) json.RawMessage {
	t.Helper()
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for _, m := range members(t, object) {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func plain(t *testing.T, v json.RawMessage) (s string) {
	t.Helper()
	if v != nil {
		if err := json.Unmarshal(v, &s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
