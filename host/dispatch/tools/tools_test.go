package tools_test

import (
	"encoding/json"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/dispatch/tools"
)

// Each tool has a name of its own, a description, and a schema that names the arguments it takes.
func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, x := range new(tools.Host).All() {
		if seen[x.Name] || x.Description == "" || x.Run == nil {
			t.Errorf("%+v", x.Tool)
		}
		seen[x.Name] = true
		refused, err := x.Run(t.Context(), dispatch.ToolCall{Key: "k", Arguments: json.RawMessage(`{"nonsense":1}`)})
		if err != nil || !refused.Invalid || !refused.IsError || !strings.Contains(refused.Text, "nonsense") ||
			strings.Contains(refused.Text, "file:") {
			t.Errorf("%s, with an argument that it does not have: %+v, %v", x.Name, refused, err)
		}
	}
}

func TestHello(t *testing.T) {
	h := tools.Host{}
	for _, x := range h.All() {
		if x.Name != "hello_world" {
			continue
		}
		c := dispatch.ToolCall{Arguments: json.RawMessage(`{}`), Room: dispatch.Room{Thread: "Planning"}}
		if r, err := x.Run(t.Context(), c); err != nil || r.IsError || r.Text != `Hello from the thread "Planning".` {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
