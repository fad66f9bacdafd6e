package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// mostArgument bounds the argument with a bot's instructions, in bytes: Linux takes no longer one.
const mostArgument = 128<<10 - 1

// persona is how a harness takes the model and the instructions of the bot that drives a thread.
type persona struct {
	provider string // of its models; "" for any, which stands in the model's name
	instruct func(text string) []string
}

// personas are those of the harnesses, by name. One that is not here has neither of its bot.
var personas = map[string]persona{
	catalog.Pi.Name:     {"", appendPrompt},
	catalog.Claude.Name: {"anthropic", appendPrompt},
	catalog.Codex.Name:  {"openai", developer},
}

// appendPrompt returns the arguments of pi and claude-code that append a text to their own instructions. pi reads the
// file of that name, where there is one: no file's name ends so.
func appendPrompt(text string) []string {
	return []string{"--append-system-prompt", strings.TrimRight(text, "\n") + "\n"}
}

// developer returns the arguments of codex that add a text to its own instructions. A JSON string is one of TOML but
// for DEL, which TOML wants escaped.
func developer(text string) []string {
	quoted := strings.ReplaceAll(string(thread.Marshal(text)), "\x7f", `\u007f`)
	return []string{"-c", "developer_instructions=" + quoted}
}

// errInstructions is the error of instructions that no process can have as an argument.
var errInstructions = errors.New("the bot's instructions are too long for its coding agent")

// drive gives a task the model and the instructions of the bot that drives its thread. A model that the caller asks for
// goes before, and so do the caller's arguments where the agent takes the last one. A model of a provider that the
// harness has none of is one with which the bot answers, and leaves the agent its own.
func drive(ctx context.Context, r Rows, t *launch.Task, bot string) error {
	as, known := personas[t.Harness]
	if bot == "" || !known {
		return nil
	}
	c, err := r.BotConfig(ctx, bot)
	if err != nil {
		return rows.Present(err)
	}
	provider, name, _ := strings.Cut(c.Model, "/")
	switch {
	case t.Model != "" || name == "":
	case as.provider == "":
		t.Model = c.Model
	case as.provider == provider:
		t.Model = name
	}
	if c.Instructions == "" {
		return nil
	}
	args := as.instruct(c.Instructions)
	if n := len(args[len(args)-1]); n > mostArgument {
		return fmt.Errorf("%w: %d bytes of at most %d", errInstructions, n, mostArgument)
	}
	t.Args = append(args, t.Args...)
	return nil
}
