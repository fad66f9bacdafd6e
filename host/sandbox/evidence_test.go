package sandbox_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// nest is an error of the control plane.
func nest(own int, path, message string) string {
	return fmt.Sprintf(`{"path":%q,"statusCode":%d,"error":"Not Found","message":%q}`, path, own, message)
}

// strays are answers that are no evidence of a box's end. {id} stands for the id of the box.
var strays = map[string]fakedaytona.Fault{
	"ingress page":    {Status: 404, Body: "<html>Not Found</html>", Header: http.Header{"Content-Type": {"text/html"}}},
	"ingress text":    {Status: 404, Body: "default backend - 404"},
	"nothing":         {Status: 404},
	"another program": {Status: 404, Body: `{"detail":"Not Found"}`},
	"another status":  {Status: 404, Body: nest(400, "/api/sandbox/{id}", "Sandbox with ID or name {id} not found")},
	"no status":       {Status: 404, Body: `{"message":"Sandbox with ID or name {id} not found"}`},
	"wrong address":   {Status: 404, Body: nest(404, "/wrong/sandbox/{id}", "Cannot GET /wrong/sandbox/{id}")},
	"another sandbox": {Status: 404, Body: nest(404, "/api/sandbox/x", "Sandbox with ID or name x not found")},
	"a longer id":     {Status: 404, Body: nest(404, "/api/sandbox/x", "Sandbox with ID or name {id}-2 not found")},
	"another object":  {Status: 404, Body: nest(404, "/api/sandbox/{id}", "Organization not found")},
	"410":             {Status: 410, Body: nest(410, "/api/sandbox/{id}", "Sandbox with ID or name {id} not found")},
	"redirect":        {Status: 302, Header: http.Header{"Location": {"/login"}}},
	"page with 200":   {Status: 200, Body: "<html>sign in</html>", Header: http.Header{"Content-Type": {"text/html"}}},
	"empty with 200":  {Status: 200, Body: `{}`},
	"other with 200":  {Status: 200, Body: `{"id":"x","state":"destroyed"}`},
	"stateless":       {Status: 200, Body: `{"id":"{id}"}`},
}

// TestStrayAnswers: only the control plane's own answer about this box is evidence of its end.
func TestStrayAnswers(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	b := f.create(t, sandbox.Options{})
	id := b.Ref().ID
	for name, fault := range strays {
		t.Run(name, func(t *testing.T) {
			fault.Body = strings.ReplaceAll(fault.Body, "{id}", id)
			hook := func(r *http.Request) fakedaytona.Fault {
				if strings.Contains(r.URL.Path, "/api/sandbox/") {
					return fault
				}
				if strings.HasSuffix(r.URL.Path, "/process/execute") {
					return fakedaytona.Fault{Status: 404}
				}
				return fakedaytona.Fault{}
			}
			f.hook.Store(&hook)
			defer f.hook.Store(nil)
			if health, why, err := f.Probe(t.Context(), id); health != sandbox.Unknown || err == nil {
				t.Errorf("probe: %v, %s, %v", health, why, err)
			}
			if _, err := f.Open(t.Context(), id); err == nil || errors.Is(err, sandbox.ErrGone) {
				t.Errorf("open: %v", err)
			}
			if _, err := b.Detach(t.Context(), script("true"), "log"); err == nil || errors.Is(err, sandbox.ErrGone) {
				t.Errorf("detach: %v", err)
			}
			if err := f.Destroy(t.Context(), id); err == nil {
				t.Error("destroy: no error")
			}
		})
	}
	if health, why, err := f.Probe(t.Context(), id); health != sandbox.Live || err != nil {
		t.Errorf("afterwards: %v, %s, %v", health, why, err)
	}
}

// TestOwnAnswers: the control plane names the box in the message, or in the path.
func TestOwnAnswers(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		nest(404, "/api/sandbox/x", "Sandbox with ID or name {id} not found"),
		nest(404, "/api/sandbox/{id}?verbose=true", "Sandbox not found."),
	} {
		f := newFaulty(t)
		b := f.create(t, sandbox.Options{})
		id := b.Ref().ID
		fault := fakedaytona.Fault{Status: 404, Body: strings.ReplaceAll(body, "{id}", id)}
		f.fail(1, http.MethodGet, "/api/sandbox/", fault)
		if health, _, err := f.Probe(t.Context(), id); health != sandbox.Gone || err != nil {
			t.Errorf("%s: %v, %v", body, health, err)
		}
		f.fail(1, http.MethodGet, "/api/sandbox/", fault)
		if _, err := f.Open(t.Context(), id); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestDestroyConfirmed: a delete that was applied and answered by somebody else succeeds once the control plane
// confirms it.
func TestDestroyConfirmed(t *testing.T) {
	t.Parallel()
	for _, fault := range []fakedaytona.Fault{
		{After: true, Status: 404, Body: "<html>"}, {After: true, Status: 200}, {After: true, Status: 200, Body: "{}"},
	} {
		f := newFaulty(t)
		b := f.create(t, sandbox.Options{})
		f.fail(1, http.MethodDelete, "/sandbox/", fault)
		if err := f.Destroy(t.Context(), b.Ref().ID); err != nil {
			t.Errorf("%+v: %v", fault, err)
		}
		f.left(t, 0)
	}
}

// TestFaultyBoxes: a box in error, or whose build failed, is gone for its runs, listed, and deleted by its id. What
// runs in it is not known.
func TestFaultyBoxes(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"error", "build_failed"} {
		h := daytonaHouse(t)
		b := h.create(t, sandbox.Options{})
		h.fake.SetState(b.Ref().ID, state, "the reason")
		boxes, err := h.List(t.Context(), nil)
		if err != nil || len(boxes) != 1 || boxes[0].State != state || boxes[0].Health != sandbox.Gone {
			t.Errorf("%s: listed %+v, %v", state, boxes, err)
		}
		if _, err := h.Runs(t.Context(), b.Ref().ID, sandbox.Process{PID: 1}); !errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s: who asks whether a process runs in it gets %v", state, err)
		}
		if err := h.Destroy(t.Context(), b.Ref().ID); err != nil {
			t.Error(err)
		}
		if left := h.fake.Boxes(); len(left) > 0 {
			t.Errorf("%s: left %+v", state, left)
		}
	}
}

// TestDestroyStartsNothing: a box that sleeps is deleted as it is.
func TestDestroyStartsNothing(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"stopped", "archived"} {
		h := daytonaHouse(t)
		b := h.create(t, sandbox.Options{})
		h.fake.SetState(b.Ref().ID, state, "")
		before := len(h.fake.Requests())
		if err := h.Destroy(t.Context(), b.Ref().ID); err != nil {
			t.Error(err)
		}
		var sent []string
		for _, r := range h.fake.Requests()[before:] {
			sent = append(sent, r.Method+" "+r.Path)
		}
		if want := "[DELETE /api/sandbox/" + b.Ref().ID + "]"; fmt.Sprint(sent) != want || len(h.fake.Boxes()) > 0 {
			t.Errorf("%s: sent %v, want %s", state, sent, want)
		}
	}
}
