package recipe

import (
	"encoding/json"
	"errors"
	"strings"

	"arbe.0sk.ar/runner/host/rows"
)

// Row returns the recipe as the row of an environment has it. The config is canonical JSON, without the name, the
// runtime and the secrets, which the row has apart.
func (r Recipe) Row() (rows.Recipe, error) {
	row := rows.Recipe{Name: r.Name, Runtime: r.Runtime, Bindings: append([]rows.Binding{}, r.Secrets...)}
	r.Name, r.Runtime, r.Secrets = "", "", nil
	var err error
	row.Config, err = json.Marshal(r)
	return row, err
}

// Stored returns the recipe of an environment's row. It is as strict as Parse, but for the name. It returns an *Error.
func (all Runtimes) Stored(row rows.Recipe) (Recipe, error) {
	whole := map[string]any{}
	if err := json.Unmarshal(row.Config, &whole); err != nil {
		return Recipe{}, in([]Problem{{Text: "read the config: " + err.Error()}})
	}
	if whole == nil {
		return Recipe{}, in([]Problem{{Text: "read the config: null: want a JSON object"}})
	}
	whole["runtime"], whole["secrets"] = row.Runtime, append([]rows.Binding{}, row.Bindings...)
	data, err := json.MarshalIndent(whole, "", " ") // a line for each key, for the problems' places
	if err != nil {
		return Recipe{}, err
	}
	r, err := all.Parse(data)
	r.Name = row.Name
	return r, err
}

// mostProblems bounds the problems that an error of Check has.
const mostProblems = 10

// Check checks what a caller chooses of an environment as Parse does, and makes its config canonical. The error has no
// places: the caller has written no file.
func (all Runtimes) Check(row *rows.Recipe) error {
	whole := map[string]any{}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(row.Config, &config); err != nil {
		return errors.New("config: want a JSON object")
	}
	for key, value := range config {
		if key == "name" || key == "runtime" || key == "secrets" {
			return errors.New("config: name, runtime and secretBindings stand beside it")
		}
		whole[key] = value
	}
	whole["name"], whole["runtime"] = row.Name, row.Runtime
	if len(row.Bindings) > 0 {
		whole["secrets"] = row.Bindings
	}
	b, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	parsed, err := all.Parse(b)
	if invalid, is := errors.AsType[*Error](err); is {
		var texts []string
		for _, p := range invalid.Problems[:min(len(invalid.Problems), mostProblems)] {
			texts = append(texts, Problem{Key: p.Key, Text: p.Text}.String())
		}
		return errors.New(strings.Join(texts, "; "))
	}
	if err != nil {
		return err
	}
	canonical, err := parsed.Row()
	row.Config = canonical.Config
	return err
}
