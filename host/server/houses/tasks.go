package houses

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"net/http"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// Task is a task that a member delegates to a thread of its own.
type Task struct {
	Member string `json:"-"` // the agent's id
	Parent string `json:"-"` // the thread that delegates
	Thread string `json:"-"` // the id of the task's thread; "" for any

	Prompt      string `json:"task"`
	Agent       string `json:"agent,omitempty"`       // the bot's id; "" for one of the harness
	Harness     string `json:"harness,omitempty"`     // "" for the agent's, or pi
	Model       string `json:"model,omitempty"`       // "" for the agent's own choice
	Environment string `json:"environment,omitempty"` // "" for the thread's, or its house's default
	Sandbox     string `json:"sandbox,omitempty"`     // to share: an id, or parent; "" for one of the task's own
	Repo        string `json:"repo,omitempty"`        // in place of the environment's
	Branch      string `json:"branch,omitempty"`
	Live        bool   `json:"live,omitempty"` // the run takes chats while it lasts
}

// Delegated is the row of a task.
type Delegated struct {
	Thread string // of the task
	Agent  string // that drives it
	Fresh  bool   // it was made by this call
}

// TaskError is the answer to a task that can't be delegated.
type TaskError struct {
	Status  int
	Code    string
	Message string
}

func (e *TaskError) Error() string { return e.Message }

// taskProblem returns the answer to an error of Delegate.
func taskProblem(err error) error {
	var task *TaskError
	switch {
	case !errors.As(err, &task):
		return err
	case task.Status == http.StatusForbidden:
		return request.Refuse(http.StatusForbidden, "local_boxes", "%s", task.Message)
	}
	return request.Refuse(task.Status, task.Code, "%s", task.Message)
}

// memberTask delegates a task from a thread, as a member of its house. Once the task's row is there the answer is its
// thread's id, also where the announcement fails: a provisioner repeats that.
func (a *API) memberTask(w http.ResponseWriter, r *http.Request) error {
	g, err := a.PermitMember(r, token.ScopeWrite)
	if err != nil {
		return err
	}
	if a.Delegate == nil {
		return request.Refuse(http.StatusNotImplemented, "no_tasks", "this server takes no tasks")
	}
	body, free, err := a.ReadJSON(w, r, g, memberBody)
	if err != nil {
		return err
	}
	defer free()
	t := Task{Member: g.Author, Parent: request.ThreadOf(g)}
	if err := t.read(body, r.Header.Values("Idempotency-Key")); err != nil {
		return err
	}
	made, err := a.Delegate(r.Context(), t)
	if err != nil {
		return taskProblem(err)
	}
	if err := a.announce(r.Context(), t, made); err != nil {
		a.Logger.Warn("task not announced: its provisioner does it", "thread", t.Parent, "child", made.Thread,
			"error", err)
	}
	request.WriteJSON(w, request.MadeStatus(made.Fresh), struct {
		ThreadID string `json:"threadId"`
	}{made.Thread})
	return nil
}

// read reads a task from the body and the key of a request.
func (t *Task) read(body []byte, keys []string) error {
	if err := request.DecodeStrictly(body, t); err != nil {
		return request.Refuse(http.StatusBadRequest, "json", `want {"task":"…"}: %v`, err)
	}
	switch {
	case strings.TrimSpace(t.Prompt) == "" || len(t.Prompt) > memberText:
		return request.Refuse(http.StatusBadRequest, "task", "want a task of 1 to %d bytes", memberText)
	case t.Sandbox != "" && t.Environment != "":
		return request.Refuse(http.StatusBadRequest, "task",
			"a sandbox that is shared has its environment: leave one of both out")
	case t.Sandbox != "" && t.Repo != "":
		return request.Refuse(http.StatusBadRequest, "task", "a sandbox that is shared has its files: leave repo out")
	case t.Branch != "" && t.Repo == "":
		return request.Refuse(http.StatusBadRequest, "task", "branch needs repo")
	}
	if len(keys) == 0 {
		return nil
	}
	id, err := memberEntryID(t.Member, keys)
	if err == nil {
		sum := sha256.Sum256([]byte(t.Parent + "\n" + id))
		t.Thread = strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	}
	return err
}

// announce posts a task on the thread that delegates it.
func (a *API) announce(ctx context.Context, t Task, made Delegated) error {
	_, err := a.Log.Append(ctx, t.Parent, []thread.Entry{{
		ID: thread.SpawnID(made.Thread), TS: thread.Stamp(time.Now()), AuthorID: t.Member,
		Payload: thread.Marshal(thread.AgentSpawn{
			Type: thread.TypeAgentSpawn, ChildThreadID: made.Thread, AgentID: made.Agent,
		}),
	}})
	return err
}
