package fakedaytona

import (
	"errors"
	"net/http"
	"path/filepath"
)

func (d *daemon) sessionRoutes() {
	d.mux.HandleFunc("GET /process/session", d.listSessions)
	d.mux.HandleFunc("POST /process/session", d.createSession)
	d.mux.HandleFunc("GET /process/session/{sid}",
		d.onSession(func(w http.ResponseWriter, _ *http.Request, s *session) {
			reply(w, http.StatusOK, s.view())
		}))
	d.mux.HandleFunc("DELETE /process/session/{sid}", d.onSession(d.deleteSession))
	d.mux.HandleFunc("POST /process/session/{sid}/exec", d.sessionExec)
	d.mux.HandleFunc(
		"GET /process/session/{sid}/command/{cid}",
		d.onCommand(func(w http.ResponseWriter, _ *http.Request, _ *session, c *command) {
			reply(w, http.StatusOK, c.view())
		}),
	)
	d.mux.HandleFunc("GET /process/session/{sid}/command/{cid}/logs", d.onCommand(d.logs))
	d.mux.HandleFunc("POST /process/session/{sid}/command/{cid}/input", d.onCommand(d.input))
}

// entrypoint is the session of the image's own command, which nobody may give commands to.
const entrypoint = "entrypoint"

var noSession = toolError{http.StatusNotFound, "NOT_FOUND", "not found: session not found"}

func (d *daemon) session(id string) *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sessions[id]
}

func (d *daemon) onSession(do func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("sid")
		if id == entrypoint && r.Method == http.MethodDelete {
			complain(w, r,
				toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: can't delete entrypoint session"})
		} else if s := d.session(id); s == nil {
			complain(w, r, noSession)
		} else {
			do(w, r, s)
		}
	}
}

func (d *daemon) onCommand(do func(http.ResponseWriter, *http.Request, *session, *command)) http.HandlerFunc {
	return d.onSession(func(w http.ResponseWriter, r *http.Request, s *session) {
		s.mu.Lock()
		c := s.cmds[r.PathValue("cid")]
		s.mu.Unlock()
		if c == nil {
			complain(w, r, toolError{http.StatusNotFound, "NOT_FOUND", "not found: command not found"})
			return
		}
		do(w, r, s, c)
	})
}

func (d *daemon) listSessions(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []any{}
	for _, s := range d.sessions {
		list = append(list, s.view())
	}
	reply(w, http.StatusOK, list)
}

func (d *daemon) createSession(w http.ResponseWriter, r *http.Request) {
	var q struct{ SessionID string }
	if !ask(w, r, &q) {
		return
	}
	if q.SessionID == "" {
		complain(w, r, toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: sessionId is required"})
		return
	}
	if filepath.Base(q.SessionID) != q.SessionID || q.SessionID == ".." {
		d.t.Errorf("fakedaytona: the session id %q is a path, which Daytona makes, and removes with all in it",
			q.SessionID)
		complain(w, r, toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: the double makes no such session"})
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions[q.SessionID] != nil || q.SessionID == entrypoint {
		complain(w, r, toolError{http.StatusConflict, "CONFLICT", "conflict: session already exists"})
		return
	}
	if d.isDead() {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	s, err := d.newSession(q.SessionID)
	if err != nil {
		complain(w, r, err)
		return
	}
	d.sessions[q.SessionID] = s
	w.WriteHeader(http.StatusCreated)
}

// deleteSession ends a session and all that was started in it, detached or not; only what has left both the shell's
// descendants and its group lives on.
func (d *daemon) deleteSession(w http.ResponseWriter, r *http.Request, s *session) {
	d.mu.Lock()
	mine := d.sessions[s.id] == s
	delete(d.sessions, s.id)
	d.mu.Unlock()
	if !mine {
		complain(w, r, noSession)
		return
	}
	if err := s.end(); err != nil {
		complain(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// executed is the answer to a command given to a session.
type executed struct {
	ID       string  `json:"cmdId"`
	Output   *string `json:"output"`
	Stdout   *string `json:"stdout"`
	Stderr   *string `json:"stderr"`
	ExitCode *int    `json:"exitCode"`
}

func (d *daemon) sessionExec(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Command                            string
		RunAsync, Async, SuppressInputEcho bool
	}
	if !ask(w, r, &q) {
		return
	}
	id := r.PathValue("sid")
	switch {
	case q.Command == "":
		complain(w, r, toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: command cannot be empty"})
		return
	case id == entrypoint:
		complain(
			w,
			r,
			toolError{http.StatusBadRequest, "BAD_REQUEST", "bad request: can't execute command in entrypoint session"},
		)
		return
	}
	s := d.session(id)
	if s == nil { // 404 to all but this
		complain(w, r, errors.New("failed to execute command: not found: session not found"))
		return
	}
	c, err := s.exec(q.Command, !q.SuppressInputEcho)
	if err != nil {
		complain(w, r, errors.New("failed to execute command: "+err.Error()))
		return
	}
	if q.RunAsync || q.Async {
		reply(w, http.StatusAccepted, executed{ID: c.id})
		return
	}
	select {
	case <-c.done:
	case <-s.gone:
		complain(w, r, errors.New("failed to execute command: session terminated"))
		return
	case <-d.dead:
		w.WriteHeader(http.StatusBadGateway)
		return
	case <-r.Context().Done(): // it keeps running without the client
		return
	}
	log, _ := c.since(0)
	merged, stdout, stderr := splitLog(log)
	a := executed{ID: c.id, Output: text(merged), ExitCode: c.exit}
	split, marks := shape(r)
	if split {
		a.Stdout, a.Stderr = text(stdout), text(stderr)
	}
	if marks {
		a.Output = text(log)
	}
	reply(w, http.StatusOK, a)
}

func text(b []byte) *string {
	s := string(b)
	return &s
}

// input gives a command a line to read.
func (d *daemon) input(w http.ResponseWriter, r *http.Request, _ *session, c *command) {
	var q struct{ Data string }
	if !ask(w, r, &q) {
		return
	}
	if err := c.put(q.Data); err != nil {
		complain(w, r, toolError{http.StatusGone, "GONE", "gone: " + err.Error()})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
