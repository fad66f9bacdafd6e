// Package settings reads the settings of bots: those of a bot itself, of a house for one of its bots, of a house, and
// of a thread. docs/dispatch.schema.json describes the same keys.
//
// It is strict: unknown keys, wrong types and bad values are refused, with the path of their key, as a
// rows.ErrInvalid. In a thread's settings that holds for what is below dispatch; what stands beside it is the callers'.
package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/host/rows"
)

// Bounds of settings.
const (
	MaxSize  = 64 << 10            // bytes of the JSON of each
	maxDelay = 60 * 60 * 1000      // of ambientDelayMs
	maxCool  = 24 * 60 * 60 * 1000 // of cooldownMs
	maxItems = 1000                // of an object whose keys are names
	MaxRuns  = 1_000_000           // of runs
	MaxHours = 100_000             // of boxHours

	maxCount  = 1000                // of rounds and calls
	maxWall   = 24 * 60 * 60 * 1000 // of wallMs
	maxOutput = 1_000_000           // of outputTokens
	maxTokens = 1_000_000_000       // of tokens
	maxCost   = 1000                // of cost, and of a price
	maxBudget = 1_000_000           // of budget
)

// The patterns of docs/dispatch.schema.json.
var (
	namePattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,199}$`)
	modelPattern    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,49}/[A-Za-z0-9][A-Za-z0-9._:/@-]{0,199}$`)
	providerPattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,49}$`)
	toolPattern     = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	secretPattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,199}$`)
	uuidPattern     = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

const (
	wantName     = "want the provider's name of a model, such as claude-sonnet-4-5"
	wantTool     = "want the name of a tool: small letters, digits and _"
	wantModel    = "want PROVIDER/NAME, such as anthropic/claude-sonnet-4-5"
	wantProvider = "want the name of a provider: small letters, digits and -"
	wantSecret   = "want the name of a secret: letters, digits and _, no digit first"
	wantUUID     = "want the id of an agent, a UUID in small letters"
)

// Bot reads agents.config.
func Bot(data []byte) (c rows.BotConfig, err error) {
	err = read(data, map[string]field{
		"model":        text(&c.Model, modelPattern, wantModel),
		"instructions": plain(&c.Instructions),
	})
	return c, err
}

// Member reads members.config.
func Member(data []byte) (c rows.MemberConfig, err error) {
	fields := reacting(&c.Reacting)
	fields["tools"] = truths(&c.Tools, toolPattern, wantTool)
	fields["caps"], fields["budget"] = object(caps(&c.Caps)), dollars(&c.Budget, maxBudget)
	return c, read(data, fields)
}

// House reads houses.config.
func House(data []byte) (c rows.HouseConfig, err error) {
	d := &c.Dispatch
	err = read(data, map[string]field{
		"runs": number(&c.Runs, 0, MaxRuns), "boxHours": number(&c.BoxHours, 1, MaxHours),
		"dispatch": object(map[string]field{
			"createAgents": truth(&d.CreateAgents),
			"gateModel":    text(&d.GateModel, modelPattern, wantModel),
			"models": named(&d.Models, providerPattern, wantProvider, func(m *rows.ModelAccess) map[string]field {
				return map[string]field{
					"secret": text(&m.Secret, secretPattern, wantSecret), "prices": prices(&m.Prices),
				}
			}),
			"caps":   object(caps(&d.Caps)),
			"budget": dollars(&d.Budget, maxBudget),
		}),
	})
	return c, err
}

// Thread reads what threads.config has for bots.
func Thread(data []byte) (c rows.ThreadConfig, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || all == nil {
		return c, refusal("", "want an object")
	}
	mine, has := all["dispatch"]
	if !has {
		return c, nil
	}
	d := &c.Dispatch
	err = object(map[string]field{
		"off":      truth(&d.Off),
		"perAgent": named(&d.PerAgent, uuidPattern, wantUUID, reacting),
	})(mine, "dispatch")
	return c, err
}

func reacting(r *rows.Reacting) map[string]field {
	return map[string]field{
		"triggerMode":    word(&r.TriggerMode, rows.ModeMention, rows.ModeAmbient, rows.ModeAlways, rows.ModeOff),
		"ambientDelayMs": number(&r.AmbientDelayMs, 0, maxDelay),
		"cooldownMs":     number(&r.CooldownMs, 0, maxCool),
	}
}

// field reads the value of a key, which is at a path.
type field func(data json.RawMessage, at string) error

// read reads a whole config.
func read(data []byte, fields map[string]field) error {
	if len(data) > MaxSize {
		return refusal("", fmt.Sprintf("larger than %d KiB", MaxSize>>10))
	}
	return object(fields)(data, "")
}

func refusal(at, why string) error {
	if at != "" {
		why = at + ": " + why
	}
	return rows.Refuse(rows.ErrInvalid, "config").Because(why)
}

// object reads an object with these keys.
func object(fields map[string]field) field {
	return func(data json.RawMessage, at string) error {
		return each(data, at, func(name, path string, value json.RawMessage) error {
			read, known := fields[name]
			if !known {
				return refusal(path, "unknown key: want "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			}
			return read(value, path)
		})
	}
}

// named reads an object whose keys are names of a pattern.
func named[T any](to *map[string]T, names *regexp.Regexp, want string, fields func(*T) map[string]field) field {
	return func(data json.RawMessage, at string) error {
		return each(data, at, func(name, path string, value json.RawMessage) error {
			switch {
			case !names.MatchString(name):
				return refusal(path, want)
			case len(*to) == maxItems:
				return refusal(at, fmt.Sprintf("want at most %d", maxItems))
			}
			if *to == nil {
				*to = map[string]T{}
			}
			var v T
			err := object(fields(&v))(value, path)
			(*to)[name] = v
			return err
		})
	}
}

// truths reads an object of booleans whose keys are names of a pattern.
func truths(to *map[string]bool, names *regexp.Regexp, want string) field {
	return func(data json.RawMessage, at string) error {
		*to = map[string]bool{}
		return each(data, at, func(name, path string, value json.RawMessage) error {
			switch {
			case !names.MatchString(name):
				return refusal(path, want)
			case len(*to) == maxItems:
				return refusal(at, fmt.Sprintf("want at most %d", maxItems))
			}
			var on bool
			err := truth(&on)(value, path)
			(*to)[name] = on
			return err
		})
	}
}

// each calls do for the keys of an object, in their order by name.
func each(data json.RawMessage, at string, do func(name, path string, value json.RawMessage) error) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil || all == nil {
		return refusal(at, "want an object")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path := name
		if at != "" {
			path = at + "." + name
		}
		if err := do(name, path, all[name]); err != nil {
			return err
		}
	}
	return nil
}

// value reads a value other than null.
func value[T any](data json.RawMessage, at, want string) (v T, err error) {
	if string(data) == "null" || json.Unmarshal(data, &v) != nil {
		return v, refusal(at, want)
	}
	return v, nil
}

// plain reads a text without NUL, which no row can have.
func plain(to *string) field {
	return func(data json.RawMessage, at string) (err error) {
		if *to, err = value[string](data, at, "want a string"); err == nil && strings.Contains(*to, "\x00") {
			err = refusal(at, "want no NUL")
		}
		return err
	}
}

// text reads a text of a pattern.
func text(to *string, pattern *regexp.Regexp, want string) field {
	return func(data json.RawMessage, at string) (err error) {
		if *to, err = value[string](data, at, want); err == nil && !pattern.MatchString(*to) {
			err = refusal(at, want)
		}
		return err
	}
}

// word reads one of these words.
func word(to *string, words ...string) field {
	want := "want " + strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	return func(data json.RawMessage, at string) (err error) {
		if *to, err = value[string](data, at, want); err == nil && !slices.Contains(words, *to) {
			err = refusal(at, want)
		}
		return err
	}
}

// number reads a whole number.
func number(to **int64, least, most int64) field {
	want := fmt.Sprintf("want a whole number from %d to %d", least, most)
	return func(data json.RawMessage, at string) error {
		v, err := value[int64](data, at, want)
		if err == nil && (v < least || v > most) {
			err = refusal(at, want)
		}
		*to = &v
		return err
	}
}

func truth(to *bool) field {
	return func(data json.RawMessage, at string) (err error) {
		*to, err = value[bool](data, at, "want true or false")
		return err
	}
}
