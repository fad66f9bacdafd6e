// Package houses serves what members of houses do over HTTP: chats, tasks and commands on threads, and the rows of
// threads, environments and secrets.
//
// A member shows a login token. A row that is not of the member's houses is answered as one that does not exist. The
// rows are the caller's: without them all routes of rows answer 501.
package houses

import (
	"context"
	"net/http"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/request"
)

// API serves members of houses over HTTP. Its fields must not change while it serves.
type API struct {
	*request.Core

	Rows  rows.Store   // nil for a server without rows
	Index *index.Index // of the threads of Log; nil for none

	// CheckRecipe returns why an environment's recipe is refused, and may complete it; nil for an API that takes all.
	// Its error is shown to the caller.
	CheckRecipe func(r *rows.Recipe) error

	// Delegate makes the row of a task, as its author; nil for an API that takes none. See rows.Tasks.
	Delegate func(ctx context.Context, t rows.Task) (made rows.Task, fresh bool, err error)

	// Commands run commands in the boxes of threads; nil for an API that runs none.
	Commands Commands

	// Settle settles a thread now; nil for an API that settles none.
	Settle func(ctx context.Context, thread string) error
}

// Where threads, environments and secrets are.
const (
	ThreadsPath      = "/api/threads"
	EnvironmentsPath = "/api/environments"
	SecretsPath      = "/api/secrets"
)

// Register adds the routes to mux.
func (a *API) Register(mux *http.ServeMux) {
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST " + ThreadsPath + "/{id}/entries":                a.memberPost,
		"POST " + ThreadsPath + "/{id}/tasks":                  a.memberTask,
		"POST " + ThreadsPath + "/{id}/commands":               a.startCommand,
		"POST " + ThreadsPath + "/{id}/commands/{exec}/cancel": a.cancelCommand,
	} {
		mux.HandleFunc(pattern, a.Answered(h))
	}
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, member.Member) error{
		"POST " + ThreadsPath:                  a.createThread,
		"PATCH " + ThreadsPath + "/{id}":       a.changeThread,
		"DELETE " + ThreadsPath + "/{id}":      a.deleteThread,
		"GET " + EnvironmentsPath:              a.listEnvironments,
		"POST " + EnvironmentsPath:             a.createEnvironment,
		"GET " + EnvironmentsPath + "/{id}":    a.environment,
		"PUT " + EnvironmentsPath + "/{id}":    a.replaceEnvironment,
		"PATCH " + EnvironmentsPath + "/{id}":  a.changeEnvironment,
		"DELETE " + EnvironmentsPath + "/{id}": a.deleteEnvironment,
		"GET " + SecretsPath:                   a.listSecrets,
		"PUT " + SecretsPath + "/{name}":       a.putSecret,
		"DELETE " + SecretsPath + "/{name}":    a.deleteSecret,
	} {
		mux.HandleFunc(pattern, a.Answered(func(w http.ResponseWriter, r *http.Request) error {
			if a.Rows == nil {
				return request.ErrNoHouses
			}
			m, err := a.OnlyMember(r) // no other token is good at the routes of rows
			if err != nil {
				return err
			}
			return a.rowError(h(w, r, m))
		}))
	}
}
