package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

func TestCreateFaults(t *testing.T) {
	for name, test := range map[string]struct {
		method, in string
		times      int
		fault      fakedaytona.Fault
		want       string // in the error; "" where a box is made nevertheless
	}{
		"refused":             {http.MethodPost, "/sandbox", 1, fakedaytona.Fault{Status: 403, Body: `{"statusCode":403,"message":"Forbidden resource"}`}, "daytona: create a box: 403 Forbidden resource"},
		"quota":               {http.MethodPost, "/sandbox", 1, fakedaytona.Fault{Status: 400, Body: `{"message":["Total CPU limit exceeded.","Maximum allowed: 4"]}`}, "400 Total CPU limit exceeded.; Maximum allowed: 4"},
		"busy":                {http.MethodPost, "/sandbox", 2, fakedaytona.Fault{Status: 429}, ""},
		"answer lost":         {http.MethodPost, "/sandbox", 1, fakedaytona.Fault{After: true}, ""},
		"answer is a 502":     {http.MethodPost, "/sandbox", 1, fakedaytona.Fault{After: true, Status: 502}, ""},
		"not applied":         {http.MethodPost, "/sandbox", 1, fakedaytona.Fault{Drop: true}, "daytona: create a box: EOF"},
		"broken":              {http.MethodPost, "/sandbox", 1, fakedaytona.Fault{Status: 500}, "daytona: create a box: 500 Internal Server Error"},
		"control plane away":  {http.MethodGet, "/api/sandbox/", 2, fakedaytona.Fault{Status: 503}, ""},
		"daemon not yet up":   {http.MethodGet, "/user-home-dir", 3, fakedaytona.Fault{Status: 502}, ""},
		"daemon never up":     {http.MethodGet, "/user-home-dir", 99, fakedaytona.Fault{Status: 502}, "daytona: find the home folder: 502 Bad Gateway"},
		"home breaks off":     {http.MethodGet, "/user-home-dir", 1, fakedaytona.Fault{Drop: true}, ""},
		"clone":               {http.MethodPost, "/git/clone", 1, fakedaytona.Fault{Status: 500, Body: `{"message":"bad ` + token + `","code":"X"}`}, "/org/repo.git: 500 bad [redacted]"},
		"clone breaks off":    {http.MethodPost, "/git/clone", 1, fakedaytona.Fault{After: true}, "EOF"},
		"branch":              {http.MethodPost, "/git/branches", 1, fakedaytona.Fault{Status: 500, Body: `{"code":"GIT_FAILED"}`}, "daytona: make the branch work: 500 GIT_FAILED"},
		"check-out":           {http.MethodPost, "/git/checkout", 1, fakedaytona.Fault{Status: 404, Body: "404 page not found\n"}, "daytona: check out work: 404 404 page not found"},
		"deleting is refused": {http.MethodDelete, "/sandbox/", 2, fakedaytona.Fault{Status: 409}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t)
			f.fail(test.times, test.method, test.in, test.fault)
			b, err := f.Create(t.Context(), sandbox.Options{Repo: "org/repo", Branch: "work", Token: token})
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), token) ||
					strings.Contains(err.Error(), f.fake.Key) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				f.left(t, 0)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f.left(t, 1)
			if res := run(t, b, "cat README"); string(res.Stdout) != "read me\n" {
				t.Errorf("printed %q", res.Stdout)
			}
			if err := f.Destroy(t.Context(), b.Ref().ID); err != nil {
				t.Error(err)
			}
			f.left(t, 0)
		})
	}
}

// TestStartFails has boxes that never start: one whose creation fails, one that falls into error later, one that
// vanishes.
func TestStartFails(t *testing.T) {
	t.Parallel()
	t.Run("at once", func(t *testing.T) {
		h := daytonaHouse(t)
		h.fake.FailStart = "no runners available"
		if _, err := h.Create(t.Context(), sandbox.Options{}); err == nil ||
			!strings.Contains(err.Error(), "no runners available") {
			t.Error(err)
		}
		if left := h.fake.Boxes(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	for state, change := range map[string]func(*fakedaytona.Server, string){
		"error":        func(s *fakedaytona.Server, id string) { s.SetState(id, "error", "the disk is full") },
		"build_failed": func(s *fakedaytona.Server, id string) { s.SetState(id, "build_failed", "the disk is full") },
		"not found":    func(s *fakedaytona.Server, id string) { s.Vanish(id) },
	} {
		t.Run(state, func(t *testing.T) {
			h := daytonaHouse(t)
			h.fake.StartAfter = time.Hour
			done := make(chan error)
			go func() {
				_, err := h.Create(t.Context(), sandbox.Options{})
				done <- err
			}()
			soon(t, "the box is creating", func() bool { return len(h.fake.Boxes()) == 1 })
			change(h.fake, h.fake.Boxes()[0].ID)
			err := <-done
			if err == nil || state != "not found" && !strings.Contains(err.Error(), state+": the disk is full") {
				t.Error(err)
			}
			if left := h.fake.Boxes(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestCreateGivenUp is an order to stop while a box is being made: it is taken back, although it can't be deleted
// while it starts.
func TestCreateGivenUp(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	h.fake.StartAfter = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan struct{})
	go func() {
		defer close(given)
		soon(t, "the box is creating", func() bool { return len(h.fake.Boxes()) == 1 })
		cancel()
		soon(t, "the box can't be deleted", func() bool {
			return slices.ContainsFunc(h.fake.Requests(), func(r fakedaytona.Request) bool {
				return r.Method == http.MethodDelete
			})
		})
		h.fake.SetState(h.fake.Boxes()[0].ID, "started", "")
	}()
	if _, err := h.Create(ctx, sandbox.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-given
	if left := h.fake.Boxes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestExecFaults cuts a command off at each of its requests. Exec reports it in time, and leaves no session.
func TestExecFaults(t *testing.T) {
	for name, test := range map[string]struct {
		method, in string
		times      int
		fault      fakedaytona.Fault
		well       bool
	}{
		"folder":            {http.MethodPost, "/files/folder", 1, fakedaytona.Fault{Status: 400}, false},
		"environment":       {http.MethodPost, "/files/bulk-upload", 1, fakedaytona.Fault{Status: 400, Body: `{"errors":["no space left"],"files":null}`}, false},
		"session":           {http.MethodPost, "/process/session", 1, fakedaytona.Fault{Drop: true}, false},
		"session's answer":  {http.MethodPost, "/process/session", 1, fakedaytona.Fault{After: true}, false},
		"command":           {http.MethodPost, "/exec", 1, fakedaytona.Fault{Status: 500, Body: `{"message":"failed to execute command: not found: session not found"}`}, false},
		"command's answer":  {http.MethodPost, "/exec", 1, fakedaytona.Fault{After: true}, false},
		"look":              {http.MethodGet, "/command/", 1, fakedaytona.Fault{Drop: true}, true},
		"looks":             {http.MethodGet, "/command/", 3, fakedaytona.Fault{Status: 504}, true},
		"many looks":        {http.MethodGet, "/command/", 99, fakedaytona.Fault{Status: 502}, false},
		"output":            {http.MethodGet, "/logs", 2, fakedaytona.Fault{Status: 502}, true},
		"removal halfway":   {http.MethodDelete, "/process/session", 1, fakedaytona.Fault{Status: 500}, true},
		"session's removal": {http.MethodDelete, "/process/session", 1, fakedaytona.Fault{After: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t)
			b := f.create(t, sandbox.Options{})
			hits := f.fail(test.times, test.method, test.in, test.fault)
			c := script("echo $V; sleep 0.1; echo $V >>ran")
			c.Env = map[string]string{"V": "value"}
			res, err := b.Exec(t.Context(), c)
			if (err == nil) != test.well || test.well != (string(res.Stdout) == "value\n" && res.ExitCode == 0) ||
				hits.Load() == 0 {
				t.Errorf("exit %d, printed %q, %v", res.ExitCode, res.Stdout, err)
			}
			f.hook.Store(nil)
			if left, err := filepath.Glob(b.Home() + "/.daytona/sessions/*"); err != nil || len(left) > 0 {
				t.Errorf("sessions are left: %v", left)
			}
			if left, err := filepath.Glob(b.Home() + "/.arbe-exec/*"); err != nil || len(left) > 0 {
				t.Errorf("in the box: %v", left)
			}
			if ran := read(b.WorkDir() + "/ran"); len(ran) > len("value") {
				t.Errorf("it ran more than once: %q", ran)
			}
			run(t, b, "true")
		})
	}
}

// TestExecLosesItsBox takes the box, or its daemon, away from a running command.
func TestExecLosesItsBox(t *testing.T) {
	for name, lose := range map[string]func(*fakedaytona.Server, string){
		"vanish": func(s *fakedaytona.Server, id string) { s.Vanish(id) },
		"error":  func(s *fakedaytona.Server, id string) { s.SetState(id, "error", "x") },
		"kill":   func(s *fakedaytona.Server, id string) { s.Kill(id) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := daytonaHouse(t)
			b := h.create(t, sandbox.Options{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				soon(t, "it runs", func() bool { return read(b.WorkDir()+"/runs") != "" })
				lose(h.fake, b.Ref().ID)
			}()
			res, err := b.Exec(t.Context(), script("echo x >runs; sleep 1000"))
			<-done
			if err == nil || errors.Is(err, sandbox.ErrGone) != (name != "kill") || res.ExitCode != -1 || res.TimedOut {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// TestUploadCut breaks the connection off in the middle of a file. The file that was there is as it was.
func TestUploadCut(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	b := f.create(t, sandbox.Options{})
	put := func(ctx context.Context, content io.Reader, size int64) error {
		return b.Upload(ctx, sandbox.File{Path: "file", Content: content, Size: size})
	}
	if err := put(t.Context(), strings.NewReader("old"), 3); err != nil {
		t.Fatal(err)
	}
	const size = 8 << 20
	ctx, cancel := context.WithCancel(t.Context())
	half := io.MultiReader(bytes.NewReader(make([]byte, size/2)),
		readerFunc(func([]byte) (int, error) { cancel(); <-ctx.Done(); return 0, io.EOF }))
	if err := put(ctx, half, size); err == nil {
		t.Error("half a file was uploaded")
	}
	for _, fault := range []struct {
		method, in string
		f          fakedaytona.Fault
	}{
		{http.MethodPost, "/files/bulk-upload", fakedaytona.Fault{Drop: true}},
		{http.MethodPost, "/files/bulk-upload", fakedaytona.Fault{Status: 400, Body: `{"errors":["no space left on device"],"files":[]}`}},
		{http.MethodPost, "/files/permissions", fakedaytona.Fault{Status: 400}},
		{http.MethodPost, "/files/move", fakedaytona.Fault{Status: 500}},
	} {
		f.fail(1, fault.method, fault.in, fault.f)
		err := put(t.Context(), bytes.NewReader(make([]byte, size)), size)
		if err == nil {
			t.Errorf("%+v: no error", fault)
		}
		t.Log(err)
	}
	f.hook.Store(nil)
	if got := read(b.WorkDir() + "/file"); got != "old" {
		t.Errorf("the file has %d bytes", len(got))
	}
	// A daemon that moves nothing over what is there.
	f.fail(1, http.MethodPost, "/files/move", fakedaytona.Fault{Status: 409})
	if err := put(t.Context(), strings.NewReader("new"), 3); err != nil || read(b.WorkDir()+"/file") != "new" {
		t.Errorf("%q, %v", read(b.WorkDir()+"/file"), err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestUploadStreams holds that a file is not taken into memory on its way: more than the machine has would be sent.
func TestUploadStreams(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	b := h.create(t, sandbox.Options{})
	const size = 48 << 20
	var read, most atomic.Int64
	content := readerFunc(func(p []byte) (int, error) {
		n := min(int64(len(p)), size-read.Load())
		if n == 0 {
			return 0, io.EOF
		}
		read.Add(n)
		// What was read and has not been written yet is somewhere between.
		if found, _ := filepath.Glob(b.Home() + "/.arbe-*"); len(found) == 1 {
			if fi, err := os.Stat(found[0]); err == nil {
				most.Store(max(most.Load(), read.Load()-fi.Size()))
			}
		}
		return int(n), nil
	})
	if err := b.Upload(t.Context(), sandbox.File{Path: "big", InHome: true, Content: content, Size: size}); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(b.Home() + "/big"); err != nil || fi.Size() != size || most.Load() > size/3 {
		t.Errorf("%v; up to %d bytes were on their way", err, most.Load())
	}
}

// TestExecWithoutRoom is a box in which no command can be given its folder.
func TestExecWithoutRoom(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	b := h.create(t, sandbox.Options{})
	if err := os.WriteFile(b.Home()+"/.arbe-exec", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	res, err := b.Exec(t.Context(), script("true"))
	if err == nil || res.ExitCode != -1 || !strings.Contains(err.Error(), "no room for a command in the box") {
		t.Errorf("exit %d, %v", res.ExitCode, err)
	}
}
