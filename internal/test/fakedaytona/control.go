package fakedaytona

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *Server) routes() {
	on := func(pattern string, do func(*http.Request) (any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		s.mux.HandleFunc(method+" /api"+path, func(w http.ResponseWriter, r *http.Request) { s.control(w, r, do) })
	}
	on("POST /sandbox", s.create)
	on("GET /sandbox", s.list)
	on("GET /sandbox/{id}", s.onBox(func(b *box, _ *http.Request) (any, error) { return s.sandbox(b), nil }))
	on("DELETE /sandbox/{id}", s.onBox(s.deleteBox))
	on("POST /sandbox/{id}/start", s.onBox(s.startBox))
	on("POST /sandbox/{id}/recover", s.onBox(s.recoverBox))
	on("POST /sandbox/{id}/stop", s.onBox(s.stopBox))
	on("PUT /sandbox/{id}/labels", s.onBox(s.setLabels))
	on("POST /sandbox/{id}/autostop/{n}", s.onBox(s.interval(func(b *box, n int) { b.AutoStop = n })))
	on("POST /sandbox/{id}/autodelete/{n}", s.onBox(s.interval(func(b *box, n int) { b.AutoDelete = n })))
	on("POST /sandbox/{id}/autoarchive/{n}", s.onBox(s.interval(func(*box, int) {})))
	on("POST /sandbox/{id}/last-activity", s.onBox(s.activity))
	on("GET /sandbox/{id}/toolbox-proxy-url", s.onBox(func(*box, *http.Request) (any, error) {
		return map[string]string{"url": s.toolboxURL()}, nil
	}))
	on("GET /volumes", s.listVolumes)
	on("POST /volumes", s.createVolume)
	on("GET /volumes/{id}", s.onVolume(func(v Volume) string { return v.ID }))
	on("GET /volumes/by-name/{id}", s.onVolume(func(v Volume) string { return v.Name }))
	on(" /", func(r *http.Request) (any, error) {
		return nil, apiError{http.StatusNotFound, fmt.Sprintf("Cannot %s %s", r.Method, r.URL.Path)}
	})
	s.mux.HandleFunc("/toolbox/{id}/", s.proxy)
}

// apiError is an error of the control plane.
type apiError struct {
	status  int
	message string
}

func (e apiError) Error() string { return e.message }

// control answers one request to the control plane. do is called with s.mu held.
func (s *Server) control(w http.ResponseWriter, r *http.Request, do func(*http.Request) (any, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v any
	err := error(apiError{http.StatusUnauthorized, "Invalid credentials"})
	if r.Header.Get("Authorization") == "Bearer "+s.Key {
		v, err = do(r)
	}
	if err == nil {
		status := http.StatusOK
		if strings.HasSuffix(r.URL.Path, "/last-activity") {
			status = http.StatusCreated
		}
		reply(w, status, v)
		return
	}
	e, ok := err.(apiError) // never wrapped
	if !ok {
		e = apiError{http.StatusInternalServerError, err.Error()}
	}
	reply(w, e.status, map[string]any{
		"path": r.URL.Path, "timestamp": stamp(time.Now()), "statusCode": e.status, "error": http.StatusText(e.status),
		"message": e.message,
	})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if v != nil {
		_ = json.NewEncoder(w).Encode(v) // the client may have gone
	}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (s *Server) onBox(do func(*box, *http.Request) (any, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		id := r.PathValue("id")
		b := s.find(id)
		if b == nil {
			return nil, apiError{http.StatusNotFound, fmt.Sprintf("Sandbox with ID or name %s not found", id)}
		}
		return do(b, r)
	}
}

// medium is a snapshot of more than the default size.
const medium = "daytona-medium"

func (s *Server) create(r *http.Request) (any, error) {
	var q struct {
		Name, Snapshot, Target               string
		Env, Labels                          map[string]string
		CPU, GPU, Memory, Disk               *int
		AutoStopInterval, AutoDeleteInterval *int
		Volumes                              []Mount
		BuildInfo                            *struct{ DockerfileContent string }
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, apiError{http.StatusBadRequest, err.Error()}
	}
	b := &box{Box: Box{
		Name: q.Name, Snapshot: q.Snapshot, Target: q.Target, Labels: q.Labels, Env: q.Env, AutoStop: 15,
		AutoDelete: -1,
		CPU:        1, Memory: 1, Disk: 3,
	}}
	if b.Snapshot == medium {
		b.CPU, b.Memory, b.Disk = 2, 4, 8
	}
	for to, from := range map[*int]*int{&b.CPU: q.CPU, &b.Memory: q.Memory, &b.Disk: q.Disk} {
		if from != nil {
			*to = *from
		}
	}
	if q.BuildInfo != nil {
		b.Image = strings.TrimSpace(strings.TrimPrefix(q.BuildInfo.DockerfileContent, "FROM "))
	} else if b.Snapshot == "" {
		b.Snapshot = s.Snapshots[0]
	}
	var err error
	if b.Volumes, err = s.mounts(q.Volumes); err != nil {
		return nil, err
	}
	if q.AutoStopInterval != nil {
		b.AutoStop = *q.AutoStopInterval
	}
	if q.AutoDeleteInterval != nil {
		b.AutoDelete = *q.AutoDeleteInterval
	}
	switch {
	case q.BuildInfo != nil && q.Snapshot != "":
		return nil, apiError{http.StatusBadRequest, "Cannot specify a snapshot when using a build info entry"}
	case q.BuildInfo == nil && (q.CPU != nil || q.GPU != nil || q.Memory != nil || q.Disk != nil):
		return nil, apiError{http.StatusBadRequest, "Cannot specify Sandbox resources when using a snapshot"}
	case q.BuildInfo == nil && !slices.Contains(s.Snapshots, b.Snapshot):
		return nil, apiError{
			http.StatusBadRequest,
			fmt.Sprintf("Snapshot %s not found. Did you add it through the Daytona Dashboard?", b.Snapshot),
		}
	case b.AutoStop < 0:
		return nil, apiError{http.StatusBadRequest, "Auto-stop interval must be non-negative"}
	case q.Name != "" && s.find(q.Name) != nil:
		return nil, apiError{http.StatusConflict, fmt.Sprintf("Sandbox with name %s already exists", q.Name)}
	}
	if err := s.add(b); err != nil {
		return nil, err
	}
	if q.BuildInfo != nil {
		b.State = building // the answer does not wait for a build
		return s.sandbox(b), nil
	}
	if s.FailStart != "" {
		s.halt(b, failed)
		b.ErrorReason = s.FailStart
		return nil, apiError{http.StatusBadRequest, "Sandbox failed to start: " + s.FailStart}
	}
	s.settle(b)
	return s.sandbox(b), nil
}

// deleteBox begins to destroy a box. Its name is free at once.
func (s *Server) deleteBox(b *box, _ *http.Request) (any, error) {
	if err := pending(b); err != nil {
		return nil, err
	}
	s.halt(b, destroying)
	b.ready = s.now().Add(s.DestroyAfter)
	v := s.sandbox(b)
	s.settle(b)
	return v, nil
}

func (s *Server) startBox(b *box, _ *http.Request) (any, error) {
	if err := pending(b); err != nil {
		return nil, err
	}
	if b.State == started {
		return s.sandbox(b), nil
	}
	if b.State != stopped && b.State != archived && b.State != paused {
		return nil, apiError{http.StatusBadRequest, "Sandbox is not in valid state"}
	}
	b.State, b.ready = starting, s.now().Add(s.StartAfter)
	s.settle(b)
	return s.sandbox(b), nil
}

// recoverBox repairs a box in an error that can be repaired, and starts it.
func (s *Server) recoverBox(b *box, _ *http.Request) (any, error) {
	if err := pending(b); err != nil {
		return nil, err
	}
	if b.State != failed || !b.recoverable {
		return nil, apiError{http.StatusBadRequest, "Sandbox must be in a recoverable error state"}
	}
	b.State, b.ErrorReason, b.recoverable, b.ready = starting, "", false, s.now().Add(s.StartAfter)
	s.settle(b)
	return s.sandbox(b), nil
}

// stopBox answers before the box is stopped, as the original does.
func (s *Server) stopBox(b *box, _ *http.Request) (any, error) {
	if err := pending(b); err != nil {
		return nil, err
	}
	if b.State != started {
		return nil, apiError{http.StatusBadRequest, "Sandbox is not started"}
	}
	b.State = stopping
	v := s.sandbox(b)
	s.stop(b)
	return v, nil
}

func pending(b *box) error {
	if slices.Contains([]string{building, creating, starting, stopping, destroying}, b.State) {
		return apiError{http.StatusConflict, "Sandbox state change in progress"}
	}
	return nil
}

func (s *Server) setLabels(b *box, r *http.Request) (any, error) {
	var q struct{ Labels map[string]string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Labels == nil {
		return nil, apiError{http.StatusBadRequest, "labels must be an object"}
	}
	b.Labels = q.Labels
	return map[string]any{"labels": b.Labels}, nil
}

func (s *Server) interval(set func(*box, int)) func(*box, *http.Request) (any, error) {
	return func(b *box, r *http.Request) (any, error) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			return nil, apiError{http.StatusBadRequest, "Validation failed (numeric string is expected)"}
		}
		set(b, n)
		return s.sandbox(b), nil
	}
}

func (s *Server) activity(b *box, _ *http.Request) (any, error) {
	b.last = s.now()
	return nil, nil
}

func (s *Server) toolboxURL() string { return s.http.URL + "/toolbox" }

// sandbox is the whole record of a box.
func (s *Server) sandbox(b *box) map[string]any {
	v := s.item(b)
	v["env"] = nonNil(b.Env)
	v["volumes"] = append([]Mount{}, b.Volumes...)
	return v
}

// item is a box as it is listed.
func (s *Server) item(b *box) map[string]any {
	desired := map[string]string{
		building: started, creating: started, starting: started, stopping: stopped,
		destroying: destroyed,
	}[b.State]
	if desired == "" {
		desired = b.State
	}
	if b.State == failed || b.State == "build_failed" {
		desired = started
	}
	v := map[string]any{
		"id": b.ID, "organizationId": "00000000-0000-4000-8000-000000000001", "name": b.Name, "target": b.Target,
		"snapshot": b.Snapshot,
		"user":     "daytona", "public": false, "networkBlockAll": false,
		"cpu": b.CPU, "gpu": 0, "memory": b.Memory, "disk": b.Disk, "labels": nonNil(b.Labels),
		"state": b.State, "desiredState": desired, "recoverable": b.recoverable, "backupState": "None",
		"sandboxClass":     "container",
		"autoStopInterval": b.AutoStop, "autoArchiveInterval": 10080, "autoDeleteInterval": b.AutoDelete,
		"daemonVersion": Version,
		"createdAt": stamp(
			b.Created,
		), "updatedAt": stamp(b.Created), "lastActivityAt": stamp(b.last), "toolboxProxyUrl": s.toolboxURL(),
	}
	if b.ErrorReason != "" {
		v["errorReason"] = b.ErrorReason
	}
	return v
}

func nonNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return maps.Clone(m)
}
