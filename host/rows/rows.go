// Package rows is the vocabulary of the control plane: threads, tasks, boxes, environments, secrets, houses and agents
// as they stand in a database, what callers choose of them, and the errors of reading and changing them. Everybody
// speaks it: the database (host/control), the HTTP API, what launches and reconciles runs, what lets bots answer, and
// the command line. It has no database and no rule.
//
// Ids are strings, "" where there is none. The id of an agent is a UUID in lower case.
package rows

import "context"

// Store is the rows of houses as their members read and write them. Its methods may be called at the same time, and are
// bound by their context.
//
// Each call acts for an agent, by its id, and sees and changes what that agent may, at the time of the call. The agent
// "" is the host, which sees all. What the agent does not see is ErrAbsent, whether it exists or not. A call may be
// repeated after an error that is no Refusal: the rows can't be reached then.
type Store interface {
	As(agent string) Scope
}

// Scope is the rows that one agent may read and write.
type Scope interface {
	Threads
	Environments
	Secrets
	Tasks
}

// Threads are the rows of threads.
type Threads interface {
	// Threads returns a page, the newest first.
	Threads(ctx context.Context, q Query) ([]Thread, error)

	Thread(ctx context.Context, id string) (Thread, error)

	// CreateThread makes a row. It returns ErrTaken for an id that any house has.
	CreateThread(ctx context.Context, n NewThread) (Thread, error)

	ChangeThread(ctx context.Context, id string, c ThreadChange) (Thread, error)

	// DeleteThread deletes the rows of a thread and its children. Before that it calls logs with all of their ids,
	// while no run can claim one of them and none gets a child. Where logs fails, or the process dies before the rows
	// are gone, all rows stay, and the call may be repeated; logs may be called several times. It returns ErrRunning.
	DeleteThread(ctx context.Context, id string, logs func(ctx context.Context, ids []string) error) error
}

// Tasks are the rows of delegated tasks.
type Tasks interface {
	// Delegate makes the row of a task's thread. With the id of a thread it may be repeated: the same task is returned
	// again, without fresh; another one is ErrTaken. It returns ErrNoBot, ErrNoSandbox, ErrNoRecipe, ErrDeadBox,
	// ErrArchived, ErrLocal and ErrClosed.
	Delegate(ctx context.Context, t Task) (made Task, fresh bool, err error)
}

// Environments are the rows of environments.
type Environments interface {
	// Environments returns those of a house, by name, the first 1000, without their configs.
	Environments(ctx context.Context, house string) ([]Environment, error)

	Environment(ctx context.Context, id string) (Environment, error)

	CreateEnvironment(ctx context.Context, house string, r Recipe) (Environment, error)

	ChangeEnvironment(ctx context.Context, id string, c EnvironmentChange) (Environment, error)

	// RemoveEnvironment deletes an environment, or archives one that a thread or a sandbox names.
	RemoveEnvironment(ctx context.Context, id string) (archived bool, err error)
}

// Secrets are the rows of secrets. Values go in and never out.
type Secrets interface {
	// Secrets returns those of a house, by name, the first 1000.
	Secrets(ctx context.Context, house string) ([]Secret, error)

	// PutSecret makes a secret or replaces its value. It returns ErrForbidden where the agent is no owner, and
	// ErrNoKeys, with a text where there are keys that can't be read.
	PutSecret(ctx context.Context, house, name string, value []byte) (Secret, error)

	// DeleteSecret deletes a secret. It returns ErrForbidden where the agent is no owner.
	DeleteSecret(ctx context.Context, house, name string) error
}
