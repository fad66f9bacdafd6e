package houses

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/server/request"
	"arbe.0sk.ar/runner/thread"
)

// Bounds of a row.
const (
	rowBody   = 256 << 10 // bytes of the body
	rowName   = 200       // bytes of a name
	rowTag    = 100       // bytes of a tag
	rowConfig = 64 << 10  // bytes of a config
)

// keyedPrefix begins the ids of threads that are made with an idempotency key. Callers name no thread so.
const keyedPrefix = "m_"

// createThread makes a thread: its row, and then its log without entries. What a failure leaves, a repeat finishes.
func (a *API) createThread(w http.ResponseWriter, r *http.Request, m member.Member) error {
	var want rows.NewThread
	if err := a.readRow(w, r, m, rowBody, &want, false); err != nil {
		return err
	}
	repeats, err := complete(&want, m, r.Header.Values("Idempotency-Key"))
	if err != nil {
		return err
	}
	t, made, err := a.makeRow(r.Context(), m, want, repeats)
	if err != nil {
		return err
	}
	a.Doors.Forget(t.ID)
	if _, _, err := a.Log.Create(r.Context(), thread.StreamName(t.ID), log.Want{Type: request.JSON}); err != nil {
		return &logError{err}
	}
	if made {
		w.Header().Set("Location", ThreadsPath+"/"+t.ID)
	}
	return a.answerThread(w, r, request.MadeStatus(made), t)
}

// answerThread answers with the summary of a thread and its row.
func (a *API) answerThread(w http.ResponseWriter, r *http.Request, status int, t rows.Thread) error {
	var v thread.Summary
	err := index.ErrAbsent
	if a.Index != nil {
		v, err = a.Index.Summary(r.Context(), t.ID)
	}
	if err != nil && !errors.Is(err, index.ErrAbsent) {
		return &logError{err}
	}
	request.WriteJSON(w, status, WithRow(v, err == nil, t))
	return nil
}

// complete checks the row that a request wants, and gives it the house and the id. repeats reports that the request
// names the thread's id, so that it may be repeated.
func complete(n *rows.NewThread, m member.Member, keys []string) (repeats bool, err error) {
	if n.House, err = houseOf(m, n.House); err != nil {
		return false, err
	}
	if err := errors.Join(
		checkName(n.Name), checkTags(n.Tags), checkConfig(n.Config), checkBot("agent", n.Agent),
		checkBot("parentAgent", n.ParentAgent),
	); err != nil {
		return false, err
	}
	switch {
	case n.Parent != "" && n.ParentAgent != "":
		return false, request.Refuse(http.StatusBadRequest, "value", "want parent or parentAgent, not both")
	case len(keys) > 0 && n.ID != "":
		return false, request.Refuse(http.StatusBadRequest, "idempotency_key",
			"want an id or an Idempotency-Key, not both")
	case len(keys) > 0:
		if _, err := memberEntryID(m.Agent, keys); err != nil {
			return false, err
		}
		n.ID = keyedID(m.Agent, keys[0])
	case n.ID != "":
		if !thread.ValidThread(n.ID) || strings.HasPrefix(n.ID, "_") || strings.HasPrefix(n.ID, keyedPrefix) {
			return false, request.Refuse(http.StatusBadRequest, "value",
				"id: want 1 to 128 characters of A-Z a-z 0-9 _ -, which do not begin with _ or %s", keyedPrefix)
		}
	}
	return n.ID != "", nil
}

// keyedID returns the id of the thread that an agent makes with a key: always the same.
func keyedID(agent, key string) string {
	sum := sha256.Sum256([]byte("arbe thread v1\x00" + agent + "\x00" + key))
	return keyedPrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}

// makeRow makes the row of a thread, or returns the one that the same request made before.
func (a *API) makeRow(
	ctx context.Context, m member.Member, want rows.NewThread, repeats bool,
) (t rows.Thread, made bool, err error) {
	if !repeats {
		t, err = a.Rows.As(m.Agent).CreateThread(ctx, want)
		return t, true, err
	}
	t, err = a.sameRow(ctx, m, want)
	if !errors.Is(err, rows.ErrAbsent) {
		return t, false, err
	}
	// A thread that the log has is not given to the house that names it first.
	_, err = a.Log.Stat(ctx, thread.StreamName(want.ID))
	switch {
	case errors.Is(err, log.ErrAbsent):
		t, err = a.Rows.As(m.Agent).CreateThread(ctx, want)
		if !errors.Is(err, rows.ErrTaken) {
			return t, true, err
		}
	case err != nil && !errors.Is(err, log.ErrGone):
		return t, false, &logError{err}
	}
	t, err = a.sameRow(ctx, m, want) // an equal request may have made the row meanwhile, and then the log
	if errors.Is(err, rows.ErrAbsent) {
		err = errExists
	}
	return t, false, err
}

var errExists = request.Refuse(http.StatusConflict, "exists", "the id is taken by another thread")

// sameRow returns the row of a thread's id, where it is one of the member's and was made as want has it. What can be
// changed later is not compared.
func (a *API) sameRow(ctx context.Context, m member.Member, want rows.NewThread) (rows.Thread, error) {
	t, err := a.Rows.As(m.Agent).Thread(ctx, want.ID)
	if err == nil && (t.House != want.House || t.Parent != want.Parent || !strings.EqualFold(t.Agent, want.Agent) ||
		!strings.EqualFold(t.ParentAgent, want.ParentAgent)) {
		err = errExists
	}
	return t, err
}

// changeThread changes what people choose of a thread.
func (a *API) changeThread(w http.ResponseWriter, r *http.Request, m member.Member) error {
	if _, err := a.Row(r.Context(), m, r.PathValue("id")); err != nil {
		return err
	}
	var body rows.ThreadChange
	if err := a.readRow(w, r, m, rowBody, &body, false); err != nil {
		return err
	}
	err := checkConfig(body.Config)
	if body.Name != nil && err == nil {
		err = checkName(*body.Name)
	}
	if body.Tags != nil && err == nil {
		err = checkTags(*body.Tags)
	}
	if err != nil {
		return err
	}
	t, err := a.Rows.As(m.Agent).ChangeThread(r.Context(), r.PathValue("id"), body)
	if errors.Is(err, rows.ErrAbsent) {
		return request.ErrNoThread
	} else if err != nil {
		return err
	}
	return a.answerThread(w, r, http.StatusOK, t)
}

// deleteThread deletes a thread and its children: their logs, and then their rows. While their rows are there they can
// be deleted again, so that a repeat finishes what a crash has left.
func (a *API) deleteThread(w http.ResponseWriter, r *http.Request, m member.Member) error {
	id := r.PathValue("id")
	if err := a.withdraw(r.Context(), m, id); err != nil {
		return err
	}
	var gone []string
	err := a.Rows.As(m.Agent).DeleteThread(r.Context(), id, func(ctx context.Context, ids []string) error {
		gone = ids
		if err := a.refuseOpen(ctx, ids); err != nil {
			return err
		}
		for _, id := range ids {
			if err := a.deleteLog(ctx, thread.StreamName(id)); err != nil {
				return &logError{err}
			}
		}
		return nil
	})
	for _, id := range gone {
		a.Doors.Forget(id)
	}
	switch {
	case errors.Is(err, rows.ErrAbsent):
		return request.ErrNoThread
	case err != nil:
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// withdraw ends the task of a thread that is to be deleted, so that the thread that delegated it gets its end. A thread
// whose task does not wait stays as it is.
func (a *API) withdraw(ctx context.Context, m member.Member, id string) error {
	t, err := a.Row(ctx, m, id)
	if err != nil || !t.Waits || a.Settle == nil {
		return err
	}
	_, err = a.Log.Append(ctx, id, []thread.Entry{thread.NewEntry(uuid.NewString(), m.Agent, thread.Cancel{
		Signal: thread.Signal{Type: thread.TypeCancel}, Reason: "its thread is deleted",
	})})
	if err != nil {
		return err
	}
	if err := a.Settle(ctx, id); err != nil {
		a.Logger.Warn("task of a thread to delete not ended", "thread", id, "error", err)
		return request.Refuse(http.StatusServiceUnavailable, "unsettled",
			"the thread's task could not be ended; the server's log has why").With("Retry-After", 5)
	}
	return nil
}

// deleteLog deletes the log of a thread. One that was never written is made first: its id is not given again, either.
func (a *API) deleteLog(ctx context.Context, name string) error {
	err := a.Log.Delete(ctx, name)
	if errors.Is(err, log.ErrAbsent) {
		if _, _, err = a.Log.Create(ctx, name, log.Want{Type: request.JSON}); err == nil {
			err = a.Log.Delete(ctx, name)
		}
	}
	if errors.Is(err, log.ErrGone) {
		return nil
	}
	return err
}

// refuseOpen refuses threads of which one has an open run on its log: a row may be behind it.
func (a *API) refuseOpen(ctx context.Context, ids []string) error {
	if a.Index == nil {
		return request.ErrNoIndex
	}
	for _, id := range ids {
		switch v, err := a.Index.Summary(ctx, id); {
		case errors.Is(err, index.ErrAbsent):
		case err != nil:
			return &logError{err}
		case v.Status == thread.StatusRunning:
			return rows.ErrRunning
		}
	}
	return nil
}

// checkName checks a name of people's choice; "" is none.
func checkName(name string) error {
	if len(name) > rowName || strings.ContainsFunc(name, unicode.IsControl) {
		return request.Refuse(http.StatusBadRequest, "value",
			"name: want at most %d bytes, without control characters", rowName)
	}
	return nil
}

// checkTags checks the tags of a thread.
func checkTags(tags []string) error {
	bad := func(tag string) bool {
		return tag == "" || len(tag) > rowTag || strings.ContainsFunc(tag, unicode.IsControl)
	}
	if len(tags) > mostTags || slices.ContainsFunc(tags, bad) {
		return request.Refuse(http.StatusBadRequest, "value",
			"tags: want at most %d of 1 to %d bytes, without control characters", mostTags, rowTag)
	}
	return nil
}

// checkBot checks the id of a bot; "" is none. member names it.
func checkBot(member, agent string) error {
	if _, err := uuid.Parse(agent); err != nil && agent != "" {
		return request.Refuse(http.StatusBadRequest, "value", "%s: want the id of a bot, a UUID", member)
	}
	return nil
}

// checkConfig checks a config: a JSON object. nil is none.
func checkConfig(config json.RawMessage) error {
	if config == nil || len(config) <= rowConfig && bytes.HasPrefix(bytes.TrimSpace(config), []byte("{")) {
		return nil
	}
	return request.Refuse(http.StatusBadRequest, "value", "config: want a JSON object of at most %d bytes", rowConfig)
}
