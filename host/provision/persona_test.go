package provision

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
)

// What the coding agent of a bot gets of the bot.
func TestDrive(t *testing.T) {
	const say = "Say \"yes\",\nand C:\\no.\x7f"
	for _, tt := range []struct {
		name          string
		harness       string
		bot           rows.BotConfig
		asked         string // --model
		model, option string
	}{
		{name: "pi has each provider", harness: "pi", bot: rows.BotConfig{Model: "acme/m-1"}, model: "acme/m-1"},
		{name: "claude-code has anthropic", harness: "claude-code", bot: rows.BotConfig{Model: "anthropic/c"}, model: "c"},
		{name: "codex has openai", harness: "codex", bot: rows.BotConfig{Model: "openai/g/5"}, model: "g/5"},
		{name: "a model for answers alone", harness: "claude-code", bot: rows.BotConfig{Model: "openai/g"}},
		{name: "another one for answers alone", harness: "codex", bot: rows.BotConfig{Model: "anthropic/c"}},
		{name: "asked", harness: "pi", bot: rows.BotConfig{Model: "acme/m-1"}, asked: "x", model: "x"},
		{name: "nothing", harness: "pi"},
		{name: "a harness of tomorrow", harness: "new", bot: rows.BotConfig{Model: "acme/m-1", Instructions: say}},
		{
			name: "pi's instructions", harness: "pi", bot: rows.BotConfig{Instructions: say},
			option: "--append-system-prompt " + say + "\n",
		},
		{
			name: "claude-code's", harness: "claude-code", bot: rows.BotConfig{Instructions: "README.md"},
			option: "--append-system-prompt README.md\n",
		},
		{
			name: "codex's", harness: "codex", bot: rows.BotConfig{Instructions: say},
			option: `-c developer_instructions="Say \"yes\",\nand C:\\no.\u007f"`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			task := launch.Task{Thread: "t", Harness: tt.harness, Model: tt.asked, Args: []string{"--own"}}
			if err := drive(t.Context(), &house{bot: tt.bot}, &task, "old"); err != nil {
				t.Fatal(err)
			}
			want := []string{"--own"}
			if flag, value, is := strings.Cut(tt.option, " "); is {
				want = []string{flag, value, "--own"}
			}
			if diff := cmp.Diff(want, task.Args); diff != "" || task.Model != tt.model {
				t.Errorf("model %q, want %q; %s", task.Model, tt.model, diff)
			}
		})
	}
	task := launch.Task{Harness: "codex"}
	long := &house{bot: rows.BotConfig{Instructions: strings.Repeat(`"`, 1<<16)}}
	if err := drive(t.Context(), long, &task, "old"); !errors.Is(err, errInstructions) {
		t.Errorf("instructions that no process can have: %v", err)
	}
}

func (h *house) BotConfig(context.Context, string) (rows.BotConfig, error) { return h.bot, nil }
