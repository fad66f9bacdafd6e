package houses

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Command is a command to run in the box of a thread.
type Command struct {
	Thread string
	ID     string // unique on the thread
	Author string // the member's id, or the author of the token; "" for none
	Argv   []string
	Shown  string // for readers; "" for Argv as a shell would take it

	Cwd         string        // relative to the working directory of the box, or absolute; "" for that
	Environment string        // of a new box: its id or its name; "" for the thread's, or its house's default
	Timeout     time.Duration // 0 for the default
}

// CommandFault is why a command can't be started or ended.
type CommandFault int

// The faults of commands.
const (
	CommandBad        CommandFault = iota // the request
	CommandLocal                          // the box is a local one, which this server does not use
	CommandAbsent                         // the thread has no such command
	CommandTaken                          // the id is another command's
	CommandEnded                          // nothing is left to cancel
	CommandNoBox                          // the thread has no box, and no row to make one by
	CommandNoProvider                     // the box can't be reached from this server
	CommandBusy                           // too many are being started
)

// commandFaults are the statuses and the codes of the answers.
var commandFaults = map[CommandFault]struct {
	status int
	code   string
}{
	CommandBad:        {http.StatusBadRequest, "command"},
	CommandLocal:      {http.StatusForbidden, "local_boxes"},
	CommandAbsent:     {http.StatusNotFound, "not_found"},
	CommandTaken:      {http.StatusConflict, "conflict"},
	CommandEnded:      {http.StatusConflict, "ended"},
	CommandNoBox:      {http.StatusConflict, "no_box"},
	CommandNoProvider: {http.StatusNotImplemented, "no_provider"},
	CommandBusy:       {http.StatusServiceUnavailable, "busy"},
}

// RefuseCommand returns the answer to a command that can't be started or ended.
func RefuseCommand(why CommandFault, text string) error {
	fault := commandFaults[why]
	refusal := request.Refuse(fault.status, fault.code, "%s", text)
	if why == CommandBusy {
		refusal = refusal.With("Retry-After", 1)
	}
	return refusal
}

// Commands run commands in the boxes of threads. What they return of RefuseCommand is the answer to the caller.
type Commands interface {
	// Start posts a command's beginning, and returns. The command is started meanwhile, and its output and its
	// end come to the thread. fresh is false for a command that the thread has already: it is not started again.
	Start(ctx context.Context, c Command) (fresh bool, err error)

	// Cancel asks for the end of a command.
	Cancel(ctx context.Context, threadID, execID, author string) error
}

// startCommand starts a command in a thread's box.
func (a *API) startCommand(w http.ResponseWriter, r *http.Request) error {
	g, err := a.permitCommand(r)
	if err != nil {
		return err
	}
	body, free, err := a.ReadJSON(w, r, g, memberBody)
	if err != nil {
		return err
	}
	defer free()
	c := Command{Thread: request.ThreadOf(g), Author: g.Author}
	if err := c.read(body); err != nil {
		return err
	}
	fresh, err := a.Commands.Start(r.Context(), c)
	if err != nil {
		return err
	}
	request.WriteJSON(w, request.MadeStatus(fresh), struct {
		ThreadID string `json:"threadId"`
		ExecID   string `json:"execId"`
	}{c.Thread, c.ID})
	return nil
}

// cancelCommand asks for the end of a command.
func (a *API) cancelCommand(w http.ResponseWriter, r *http.Request) error {
	g, err := a.permitCommand(r)
	if err != nil {
		return err
	}
	id := r.PathValue("exec")
	if !thread.ValidRun(id) {
		return request.Refuse(http.StatusNotFound, "not_found", "the thread has no such command")
	}
	if err := a.Commands.Cancel(r.Context(), request.ThreadOf(g), id, g.Author); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// permitCommand returns the grant of a caller that may run commands in a thread's box: a member of the thread's house,
// or a write token of the thread that is for no single run. What runs in a box by a run's token can read the box's
// secrets already, but not those that a new box gets.
func (a *API) permitCommand(r *http.Request) (token.Grant, error) {
	g, isMember, err := a.PermitWriter(r, "a run's token starts and ends no commands")
	if err == nil && isMember {
		err = a.RefuseClosed(r.Context(), request.ThreadOf(g))
	}
	if err == nil && a.Commands == nil {
		err = request.Refuse(http.StatusNotImplemented, "no_commands", "this server runs no commands")
	}
	return g, err
}

// read reads a command from the body of a request.
func (c *Command) read(body []byte) error {
	var want struct {
		Command     json.RawMessage `json:"command"`
		ID          string          `json:"id"`
		Cwd         string          `json:"cwd"`
		Environment string          `json:"environment"`
		Timeout     string          `json:"timeout"`
	}
	if err := request.DecodeStrictly(body, &want); err != nil {
		return request.Refuse(http.StatusBadRequest, "json", `want {"command":"…"} or {"command":["…"]}: %v`, err)
	}
	var script string
	switch {
	case json.Unmarshal(want.Command, &script) == nil && strings.TrimSpace(script) != "":
		c.Argv, c.Shown = []string{"sh", "-c", script}, script
	case json.Unmarshal(want.Command, &c.Argv) != nil || len(c.Argv) == 0:
		return request.Refuse(http.StatusBadRequest, "command",
			"command: want a script for sh, or its words as an array")
	}
	if want.Timeout != "" {
		d, err := time.ParseDuration(want.Timeout)
		if err != nil || d <= 0 {
			return request.Refuse(http.StatusBadRequest, "command", "timeout: want a duration, as 90s or 2h")
		}
		c.Timeout = d
	}
	c.ID, c.Cwd, c.Environment = want.ID, want.Cwd, want.Environment
	if c.ID == "" {
		c.ID = uuid.Must(uuid.NewV7()).String()
	}
	if !thread.ValidRun(c.ID) {
		return request.Refuse(http.StatusBadRequest, "command", "id: want 1 to 128 characters of A-Z a-z 0-9 _ ~ -")
	}
	return nil
}
