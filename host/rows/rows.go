// Package rows declares what the HTTP API needs of the control plane's rows: threads, environments and secrets of
// houses. It has no database: cmd/arbe brings the rows, and a server without them serves threads as before.
//
// Each call acts for an agent, by its id, and sees and changes what that agent may, at the time of the call. The agent
// "" is the host, which sees all. What the agent does not see is ErrAbsent, whether it exists or not. A call may be
// repeated after an error that is none of this package's: the rows can't be reached then.
package rows

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Errors that callers branch on. A Refusal wraps one of them.
var (
	ErrAbsent    = errors.New("no such row")
	ErrTaken     = errors.New("taken")
	ErrReference = errors.New("not in this house")
	ErrInvalid   = errors.New("not valid")
	ErrForbidden = errors.New("not allowed")
	ErrArchived  = errors.New("archived")
	ErrRunning   = errors.New("a run has the thread")
	ErrNoKeys    = errors.New("this server has no keys for secrets")
)

// Refusal is an error of a row, with a text for the caller: it has no value of a row.
type Refusal struct {
	Kind error // one of this package's
	Text string
}

// Error is error's.
func (r *Refusal) Error() string { return r.Text }

// Unwrap returns the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

// Store is the rows. Its methods may be called at the same time, and are bound by their context.
type Store interface {
	Threads
	Environments
	Secrets
}

// Threads are the rows of threads.
type Threads interface {
	// Threads returns a page, the newest first.
	Threads(ctx context.Context, agent string, q Query) ([]Thread, error)

	Thread(ctx context.Context, agent, id string) (Thread, error)

	// CreateThread makes a row. It returns ErrTaken for an id that any house has.
	CreateThread(ctx context.Context, agent string, n NewThread) (Thread, error)

	ChangeThread(ctx context.Context, agent, id string, c ThreadChange) (Thread, error)

	// DeleteThread deletes the rows of a thread and its children. Before that it calls logs with all of their ids,
	// while no run can claim one of them and none gets a child. Where logs fails, or the process dies before the rows
	// are gone, all rows stay, and the call may be repeated; logs may be called several times. It returns ErrRunning.
	DeleteThread(ctx context.Context, agent, id string, logs func(ctx context.Context, ids []string) error) error
}

// Thread is the row of a thread.
type Thread struct {
	ID          string
	House       string
	Name        string
	Tags        []string
	Pinned      bool
	Closed      bool   // of a chat: members may not post
	Parent      string // thread; "" for none
	Environment string // its own; "" for the house's default
	Sandbox     string
	Agent       string // the bot that drives it; "" for a chat
	Claimed     bool   // by a run that the log may not know yet
	Waits       bool   // its task is not launched yet
	CreatedAt   time.Time
}

// Query names threads of a list.
type Query struct {
	IDs      []string // these only; nil for all
	House    string   // "" for all of the agent's
	Statuses []string // any of these, as thread.Summary has them; none for all. A chat is idle
	Tags     []string // all of these
	Pinned   bool     // these only
	Parent   string   // children of this thread only
	Limit    int      // of the page, at most 200
	After    Mark     // the last thread of the page before
}

// Mark is a place in the list of threads.
type Mark struct {
	CreatedAt time.Time
	ID        string // "" for the start of the list
}

// NewThread is what a caller chooses of a new thread.
type NewThread struct {
	ID          string // "" for a new one
	House       string
	Name        string
	Tags        []string
	Pinned      bool
	Parent      string // thread of the house
	Environment string
	Agent       string          // a bot of the house, which drives it; "" for a chat
	Config      json.RawMessage // a JSON object; nil for an empty one
}

// ThreadChange is a change of a thread. What is nil stays.
type ThreadChange struct {
	Name        *string
	Tags        *[]string
	Pinned      *bool
	Closed      *bool   // of chats only
	Environment *string // "" for none of its own
}

// Environments are the rows of environments.
type Environments interface {
	// Environments returns those of a house, by name, the first 1000, without their configs.
	Environments(ctx context.Context, agent, house string) ([]Environment, error)

	Environment(ctx context.Context, agent, id string) (Environment, error)

	CreateEnvironment(ctx context.Context, agent, house string, r Recipe) (Environment, error)

	ChangeEnvironment(ctx context.Context, agent, id string, c EnvironmentChange) (Environment, error)

	// RemoveEnvironment deletes an environment, or archives one that a thread or a sandbox names.
	RemoveEnvironment(ctx context.Context, agent, id string) (archived bool, err error)
}

// EnvironmentChange is a change of an environment, all of it or nothing. What is nil stays.
type EnvironmentChange struct {
	Recipe   func(*Recipe) error // replaces the recipe by what it makes of it; it may be called several times
	Archived *bool               // takes it out of use, or into use again
}

// Recipe is what a caller chooses of an environment.
type Recipe struct {
	Name     string
	Runtime  string          // the provider of its sandboxes
	Config   json.RawMessage // a JSON object
	Bindings []Binding
}

// Binding names a secret of the house that an environment injects.
type Binding struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
}

// Environment is the row of an environment.
type Environment struct {
	ID    string
	House string
	Recipe
	CreatedAt  time.Time
	ArchivedAt *time.Time // nil: it is in use
}

// Secrets are the rows of secrets. Values go in and never out.
type Secrets interface {
	// Secrets returns those of a house, by name, the first 1000.
	Secrets(ctx context.Context, agent, house string) ([]Secret, error)

	// PutSecret makes a secret or replaces its value. It returns ErrForbidden where the agent is no owner, and
	// ErrNoKeys, with a text where there are keys that can't be read.
	PutSecret(ctx context.Context, agent, house, name string, value []byte) (Secret, error)

	// DeleteSecret deletes a secret. It returns ErrForbidden where the agent is no owner.
	DeleteSecret(ctx context.Context, agent, house, name string) error
}

// Secret is a secret without its value.
type Secret struct {
	Name      string // of the environment variable
	CreatedAt time.Time
}
