package houses

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"net/http"
	"strings"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

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
	t := rows.Task{Author: g.Author, Parent: request.ThreadOf(g)}
	if err := readTask(body, r.Header.Values("Idempotency-Key"), &t); err != nil {
		return err
	}
	made, fresh, err := a.Delegate(r.Context(), t)
	if err != nil {
		return a.rowError(ofTask(err))
	}
	_, err = a.Log.Append(r.Context(), t.Parent, []thread.Entry{thread.Spawn(made.Thread, made.Agent, t.Author)})
	if err != nil {
		a.Logger.Warn("task not announced: its provisioner does it", "thread", t.Parent, "child", made.Thread,
			"error", err)
	}
	request.WriteJSON(w, request.MadeStatus(fresh), struct {
		ThreadID string `json:"threadId"`
	}{made.Thread})
	return nil
}

// ofTask makes a refusal of what a task's body names an answer about the task. At other routes it is about the path.
func ofTask(err error) error {
	var refused *rows.Refusal
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Kind {
	case rows.ErrTaken, rows.ErrLocal, rows.ErrClosed:
		return err
	}
	return request.Refuse(http.StatusBadRequest, "task", "%s", refused.Text)
}

// readTask reads a task from the body and the key of a request.
func readTask(body []byte, keys []string, t *rows.Task) error {
	var want struct {
		Task        string `json:"task"`
		Agent       string `json:"agent"`
		Harness     string `json:"harness"`
		Model       string `json:"model"`
		Environment string `json:"environment"`
		Sandbox     string `json:"sandbox"`
		Repo        string `json:"repo"`
		Branch      string `json:"branch"`
		Push        bool   `json:"push"`
		PR          bool   `json:"pr"`
		Live        bool   `json:"live"`
	}
	if err := request.DecodeStrictly(body, &want); err != nil {
		return request.Refuse(http.StatusBadRequest, "json", `want {"task":"…"}: %v`, err)
	}
	t.Prompt, t.Agent, t.Harness, t.Model, t.Live = want.Task, want.Agent, want.Harness, want.Model, want.Live
	t.Environment, t.Sandbox, t.Repo, t.Branch = want.Environment, want.Sandbox, want.Repo, want.Branch
	t.Push, t.PR = want.Push, want.PR
	if strings.TrimSpace(t.Prompt) == "" || len(t.Prompt) > memberText {
		return request.Refuse(http.StatusBadRequest, "task", "want a task of 1 to %d bytes", memberText)
	}
	if err := t.Check(); err != nil {
		return ofTask(err)
	}
	if len(keys) == 0 {
		return nil
	}
	id, err := memberEntryID(t.Author, keys)
	if err == nil {
		sum := sha256.Sum256([]byte(t.Parent + "\n" + id))
		t.Thread = strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	}
	return err
}
