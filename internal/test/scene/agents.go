package scene

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/internal/test/model"
)

// Others are the harnesses beside pi, with the version that this is proven with.
func Others(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, name := range harness.Names() {
		spec, err := harness.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if name != "pi" {
			versions[name] = spec.Versions[0]
		}
	}
	return versions
}

// OtherNames are the harnesses beside pi, in order.
func OtherNames(t *testing.T) []string { return slices.Sorted(maps.Keys(Others(t))) }

// Shell is a call of the agent's tool that runs a command.
func Shell(name, command string) model.Tool {
	switch name {
	case "codex":
		return model.Tool{Name: "exec_command", Arguments: map[string]any{"cmd": command, "yield_time_ms": 30000}}
	case "claude-code":
		return model.Tool{Name: "Bash", Arguments: map[string]any{"command": command, "description": "a test"}}
	}
	return model.Tool{Name: "bash", Arguments: map[string]any{"command": command}}
}

// Calling is a reply that runs commands, all at once.
func Calling(name string, commands ...string) model.Reply {
	r := model.Reply{Text: "I will call a tool."}
	for _, c := range commands {
		r.Tools = append(r.Tools, Shell(name, c))
	}
	return r
}

const Pi078 = "0.78.0"

// Bash is a reply that calls pi's bash tool.
func Bash(command string) model.Reply {
	return model.Reply{
		Text:  "I will call a tool.",
		Tools: []model.Tool{{Name: "bash", Arguments: map[string]any{"command": command}}},
	}
}

func Say(text string) model.Reply { return model.Reply{Text: text} }

// Without takes a variable out of the scene's environment.
func (s *Scene) Without(name string) {
	var env []string
	for _, kv := range s.Env {
		if !strings.HasPrefix(kv, name+"=") {
			env = append(env, kv)
		}
	}
	s.Env = env
}
