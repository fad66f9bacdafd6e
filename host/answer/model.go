package answer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread/redact"
)

// Models makes the API of each provider that this host knows, by the provider's name, with a key.
type Models map[string]func(key string) (model.Model, error)

// keyName returns the name of the secret that has a provider's key, where the house names no other one:
// ANTHROPIC_API_KEY.
func keyName(provider string) string {
	return strings.ToUpper(strings.ReplaceAll(provider, "-", "_")) + "_API_KEY"
}

// denied returns the error of a reaction that can't have its model: it ends.
func denied(format string, args ...any) error {
	return &model.Error{Kind: model.Denied, Message: fmt.Sprintf(format, args...)}
}

// model implements dispatch.Host.Model.
func (d *Dispatcher) model(ctx context.Context, id, provider string) (model.Model, error) {
	room, err := d.row(ctx, id)
	if err != nil {
		return nil, err
	}
	open, known := d.Models[provider]
	if !known {
		return nil, denied("this host has no address of the provider %q: start it with --model-url %[1]s=URL", provider)
	}
	name := keyName(provider)
	if access := room.HouseConfig.Dispatch.Models[provider]; access.Secret != "" {
		name = access.Secret
	}
	key, err := d.Secret(ctx, room.House.ID, name)
	if errors.Is(err, rows.ErrAbsent) {
		return nil, denied("the house has no secret %s: arbe secret set --house %s %[1]s", name, room.House.ID)
	} else if err != nil {
		return nil, err
	}
	m, err := open(key)
	if err != nil { // it has no key in it
		return nil, denied("the house's secret %s: %v", name, err)
	}
	hide, err := d.redactor(ctx, room)
	if err != nil {
		return nil, err
	}
	hide.Add(name, key)
	return redacted{m, hide}, nil
}

// redactor returns a redactor of the secrets that a thread's environment injects.
func (d *Dispatcher) redactor(ctx context.Context, room rows.Room) (*redact.Redactor, error) {
	hide := redact.New(nil, nil)
	environment := room.Environment()
	if environment == "" {
		return hide, nil
	}
	values, err := d.Secrets(ctx, environment)
	if err != nil && !errors.Is(err, rows.ErrMissing) { // with a missing one no box gets the others
		return nil, err
	}
	for name, value := range values {
		hide.Add(name, value)
	}
	return hide, nil
}

// tools returns the tools, whose results have no secrets of the thread's environment.
func (d *Dispatcher) tools() (all []dispatch.Tool) {
	for _, t := range d.Tools {
		run := t.Run
		t.Run = func(ctx context.Context, c dispatch.ToolCall) (result dispatch.ToolResult, err error) {
			if result, err = run(ctx, c); err != nil {
				return result, err
			}
			room, err := d.row(ctx, c.Thread)
			if err != nil {
				return result, err
			}
			hide, err := d.redactor(ctx, room)
			if err != nil {
				return result, err
			}
			result.Text = hide.Text(result.Text)
			return result, nil
		}
		all = append(all, t)
	}
	return all
}
