package rows_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// The coding agent that a bot drives asks the bot's model, and has the bot's instructions: in its first run, and once
// in the next one, by a resume. A --model goes before the bot's.
func TestPersona(t *testing.T) {
	const say = "Speak like a pirate, always.\nSay \"arr\" and 'ahoy'; $HOME stays."
	others := scene.Others(t)
	for name, tt := range map[string]struct {
		version, model, asks string
		files                []string
	}{
		"pi": {
			"0.87.1", "scripted/scripted-2", "scripted-2", []string{".pi/agent/models.json", ".pi/agent/settings.json"},
		},
		"codex": {others["codex"], "openai/gpt-test-9", "gpt-test-9", []string{".codex/config.toml"}},
		"claude-code": {
			others["claude-code"], "anthropic/claude-test-9", "claude-test-9", []string{".claude/settings.json"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &scene.Host{Scene: scene.NewOf(t, name, tt.version, model.Reply{Text: "Arr.", Times: -1})}
			h.Data = filepath.Join(h.Dir, "data")
			if err := os.MkdirAll(h.Data, 0o700); err != nil {
				t.Fatal(err)
			}
			if name == "pi" {
				addModel(t, filepath.Join(h.Dir, tt.files[0]))
			}
			onDatabase(h, withRows(h), func(c *pgx.Conn) error {
				_, err := c.Exec(t.Context(), "update agents set runtime = $1, name = 'piet'", name)
				return err
			})
			file := scene.Write(t, filepath.Join(h.Dir, "instructions"), say)
			if out, err := h.Try("agent", "set", "piet", "--model", tt.model, "--instructions", file); err != nil {
				t.Fatalf("agent set: %v\n%s", err, out)
			}
			set := h.Command("secret", "set", "--house", "house1", "DB_LOGIN")
			set.Stdin = strings.NewReader("pg-login-8a7b6c5d4e3f")
			if out, err := set.CombinedOutput(); err != nil {
				t.Fatalf("secret set: %v\n%s", err, out)
			}
			launch := func(args ...string) {
				t.Helper()
				line := []string{
					"run", "--sandbox", "local", "--harness", name, "--house", "house1", "--environment", "env1",
					"--keep", "--env", h.Agent.KeyVar,
				}
				for _, f := range tt.files {
					line = append(line, "--file", filepath.Join(h.Dir, f)+":"+f)
				}
				cmd := h.Command(append(append(line, args...), "--", "go on")...)
				cmd.Env = append(cmd.Env, h.Agent.KeyVar+"=scripted-key-0001")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("run %q: %v\n%s", args, err, out)
				}
			}
			h.Thread = h.Arbe("thread", "new")
			launch("--thread", h.Thread)
			asked(t, h, tt.asks, 0)
			before := len(h.Model.Requests())
			launch("--thread", h.Thread, "--resume")
			asked(t, h, tt.asks, before)
			before = len(h.Model.Requests())
			launch("--thread", h.Thread, "--resume", "--live") // its input is empty: it ends after the turn
			asked(t, h, tt.asks, before)
		})
	}
}

// addModel gives pi's provider a second model, which its settings don't name.
func addModel(t *testing.T, path string) {
	t.Helper()
	var config struct {
		Providers map[string]map[string]any `json:"providers"`
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := config.Providers["scripted"]
	models := p["models"].([]any)
	second := maps.Clone(models[0].(map[string]any))
	second["id"] = "scripted-2"
	p["models"] = append(models, second)
	scene.Write(t, path, string(thread.Marshal(config)))
}

// asked holds the requests from one on against the bot's model and instructions, which stand in each once.
func asked(t *testing.T, h *scene.Host, want string, from int) {
	t.Helper()
	all := h.Model.Requests()[from:]
	if len(all) == 0 {
		t.Fatal("the model was not asked")
	}
	last := all[len(all)-1]
	var body struct{ Model string }
	if err := json.Unmarshal(last.Body, &body); err != nil || body.Model != want {
		t.Errorf("the model %q was asked, want %q; %v", body.Model, want, err)
	}
	text := strings.NewReplacer(`\n`, " ", `\"`, `"`).Replace(string(last.Body))
	const one = `Speak like a pirate, always. Say "arr" and 'ahoy'; $HOME stays.`
	if n := strings.Count(text, one); n != 1 {
		t.Errorf("the instructions stand %d times in %.3000s", n, text)
	}
}
