package main

import (
	"encoding/json"
	"errors"
	"strings"

	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/rows"
)

// mostProblems bounds the problems of a recipe that an answer has.
const mostProblems = 10

// checkRecipe checks an environment's recipe as arbe env apply does, and makes its config canonical.
func checkRecipe(r *rows.Recipe) error {
	whole := map[string]any{}
	var config map[string]json.RawMessage
	if err := json.Unmarshal(r.Config, &config); err != nil {
		return errors.New("config: want a JSON object")
	}
	for key, value := range config {
		if key == "name" || key == "runtime" || key == "secrets" {
			return errors.New("config: name, runtime and secretBindings stand beside it")
		}
		whole[key] = value
	}
	whole["name"], whole["runtime"] = r.Name, r.Runtime
	if len(r.Bindings) > 0 {
		whole["secrets"] = r.Bindings
	}
	b, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	parsed, err := recipe.Parse(b)
	var invalid *recipe.Error
	if errors.As(err, &invalid) { // without the places, which are those of b
		var all []string
		for _, p := range invalid.Problems[:min(len(invalid.Problems), mostProblems)] {
			all = append(all, recipe.Problem{Key: p.Key, Text: p.Text}.String())
		}
		return errors.New(strings.Join(all, "; "))
	}
	if err == nil {
		r.Config, err = parsed.Config()
	}
	return err
}
