package rows

import (
	"encoding/json"
	"time"
)

// DefaultRuntime is the provider of the boxes of an environment that names none.
const DefaultRuntime = "daytona"

// Recipe has the fields of an environment that a caller sets.
type Recipe struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"` // the provider of its boxes; "" for DefaultRuntime
	// Config has base image, repository, setup script and limits: a JSON object; nil for an empty one.
	Config   json.RawMessage `json:"config,omitempty"`
	Bindings []Binding       `json:"secretBindings"`
}

// Settled returns the recipe with its defaults.
func (r Recipe) Settled() Recipe {
	if r.Runtime == "" {
		r.Runtime = DefaultRuntime
	}
	if r.Config == nil {
		r.Config = json.RawMessage("{}")
	}
	if r.Bindings == nil {
		r.Bindings = []Binding{}
	}
	return r
}

// Binding names a secret of the house that an environment injects.
type Binding struct {
	Name     string `json:"name"`
	Required bool   `json:"required"` // a launch without it fails
}

// Environment is the row of an environment, a recipe for boxes.
type Environment struct {
	ID         string     `json:"id"`
	House      string     `json:"house"`
	Recipe                // without its Config in a list
	CreatedAt  time.Time  `json:"createdAt"`
	ArchivedAt *time.Time `json:"archivedAt,omitempty"` // nil: it is in use
}

// EnvironmentChange is a change of an environment, all of it or nothing. What is nil stays.
type EnvironmentChange struct {
	Recipe   func(*Recipe) error // replaces the recipe by what it makes of it; it may be called several times
	Archived *bool               // takes it out of use, or into use again
}

// Secret is a secret of a house without its value.
type Secret struct {
	ID        string
	House     string
	Name      string // of the environment variable
	CreatedAt time.Time
}
