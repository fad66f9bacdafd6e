package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/daytona"
	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// fault makes the first n requests of the kind go wrong. It is set while the server serves, so the hook is there from
// the beginning.
type faulty struct {
	*house
	hook atomic.Pointer[func(*http.Request) fakedaytona.Fault]
}

func newFaulty(t *testing.T) *faulty {
	f := &faulty{house: daytonaHouse(t)}
	f.fake.Fault = func(r *http.Request) fakedaytona.Fault {
		if hook := f.hook.Load(); hook != nil {
			return (*hook)(r)
		}
		return fakedaytona.Fault{}
	}
	return f
}

func (f *faulty) fail(times int, method, in string, fault fakedaytona.Fault) (hits *atomic.Int32) {
	hits = new(atomic.Int32)
	hook := func(r *http.Request) fakedaytona.Fault {
		if r.Method == method && strings.Contains(r.URL.Path, in) && int(hits.Add(1)) <= times {
			return fault
		}
		return fakedaytona.Fault{}
	}
	f.hook.Store(&hook)
	return hits
}

func (f *faulty) left(t *testing.T, want int) {
	t.Helper()
	soon(t, fmt.Sprint(want, " boxes are left"), func() bool { return len(f.fake.Boxes()) == want })
}

func TestKeyMissing(t *testing.T) {
	_, err := daytona.New(daytona.Config{})
	if err == nil || err.Error() != "Daytona API key required (set DAYTONA_API_KEY)" {
		t.Error(err)
	}
}

func TestLocalPathRefused(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	for _, repo := range []string{".", "/Users/x/repo", "./my-project", "~/x", "../x", "widgets"} {
		_, err := h.Create(t.Context(), sandbox.Options{Repo: repo})
		if err == nil || err.Error() != "Daytona sandbox requires a GitHub repo URL (e.g. org/repo), not a local path" {
			t.Errorf("%s: %v", repo, err)
		}
	}
	for _, o := range []sandbox.Options{
		{Repo: "https://gitlab.com/a/b"},
		{Branch: "-x"},
		{Env: map[string]string{"A B": ""}},
	} {
		if _, err := h.Create(t.Context(), o); err == nil {
			t.Errorf("made %+v", o)
		}
	}
	if h.asked() > 0 {
		t.Error("requests were sent")
	}
}

// TestOrder checks the request for a new box, and where the repository is cloned to.
func TestOrder(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	b := h.create(t, sandbox.Options{
		Repo: "org/repo", Branch: "work", Token: token, Snapshot: "daytonaio/sandbox:0.8.0", Target: "eu",
		Ephemeral: true, AutoStop: 29*time.Minute + time.Second,
		Labels: map[string]string{sandbox.LabelHouse: "h"}, Env: map[string]string{"A": "b"},
	})
	box := h.fake.Boxes()[0]
	if box.Snapshot != "daytonaio/sandbox:0.8.0" || box.Target != "eu" || box.AutoStop != 30 || box.AutoDelete != 0 ||
		box.Env["A"] != "b" {
		t.Errorf("%+v", box)
	}
	for key, want := range map[string]string{
		"code-toolbox-language": "typescript", sandbox.LabelHouse: "h",
		sandbox.LabelEphemeral: "true",
	} {
		if box.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, box.Labels[key], want)
		}
	}
	if want := box.Home + "/workspace/repo"; b.WorkDir() != want {
		t.Errorf("working directory %s, want %s", b.WorkDir(), want)
	}
	var clone map[string]any
	for _, r := range h.fake.Requests() {
		if strings.HasSuffix(r.Path, "/git/clone") {
			if err := json.Unmarshal(r.Body, &clone); err != nil {
				t.Fatal(err)
			}
		}
	}
	if clone["username"] != "git" || clone["password"] != token || clone["branch"] != nil {
		t.Errorf("cloned by %v", clone)
	}
	plain := h.create(t, sandbox.Options{})
	i := slices.IndexFunc(h.fake.Boxes(), func(b fakedaytona.Box) bool { return b.ID == plain.Ref().ID })
	if box := h.fake.Boxes()[i]; box.AutoStop != 0 || box.AutoDelete != -1 || box.Labels[sandbox.LabelEphemeral] != "" {
		t.Errorf("%+v", box)
	}
}

// TestMedium: a box has 2 cores, 4 GiB and 8 GiB where nothing else is asked for, and Daytona's default size where that
// has no snapshot for it, which is asked for once.
func TestMedium(t *testing.T) {
	t.Parallel()
	h := daytonaHouse(t)
	sizeOf := func(o sandbox.Options) string {
		t.Helper()
		id := h.create(t, o).Ref().ID
		i := slices.IndexFunc(h.fake.Boxes(), func(b fakedaytona.Box) bool { return b.ID == id })
		b := h.fake.Boxes()[i]
		return fmt.Sprintf("%s %d/%d/%d", b.Snapshot+b.Image, b.CPU, b.Memory, b.Disk)
	}
	for want, o := range map[string]sandbox.Options{
		"daytona-medium 2/4/8":          {},
		"daytonaio/sandbox:0.8.0 1/1/3": {Snapshot: "daytonaio/sandbox:0.8.0"},
		"node:22-bookworm 4/8/10":       {Image: "node:22-bookworm", Resources: sandbox.Resources{CPU: 4, Memory: 8, Disk: 10}},
	} {
		if got := sizeOf(o); got != want {
			t.Errorf("%+v: %s, want %s", o, got, want)
		}
	}
	h.fake.Snapshots = []string{"daytonaio/sandbox:0.5.0-slim"}
	var steps []string
	note := sandbox.Options{Progress: func(step string) { steps = append(steps, step) }}
	for range 2 {
		if got, want := sizeOf(note), "daytonaio/sandbox:0.5.0-slim 1/1/3"; got != want {
			t.Errorf("without the snapshot: %s, want %s", got, want)
		}
	}
	asked := 0
	for _, r := range h.fake.Requests() {
		if r.Method == http.MethodPost && strings.HasSuffix(r.Path, "/sandbox") &&
			strings.Contains(string(r.Body), "daytona-medium") {
			asked++
		}
	}
	if asked != 2 || strings.Count(strings.Join(steps, "\n"), "no snapshot daytona-medium") != 1 {
		t.Errorf("asked %d times, and reported %q", asked, steps)
	}
	// A snapshot that somebody has named has to be there.
	if _, err := h.Create(t.Context(), sandbox.Options{Snapshot: "daytona-medium"}); err == nil {
		t.Error("a snapshot that is not there was replaced")
	}
}

// TestRetryAfter: a client waits as long as Retry-After asks for, and tries again at once then.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		p, err := daytona.New(daytona.Config{
			Key: "k", URL: "http://daytona.test",
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}
				if asked++; asked > 1 {
					body := `{"id":"box","state":"started"}`
					resp.StatusCode, resp.Body = 200, io.NopCloser(strings.NewReader(body))
				}
				return resp, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if health, _, err := p.Probe(t.Context(), "box"); health != sandbox.Live || err != nil {
			t.Errorf("%v, %v", health, err)
		}
		if took := time.Since(began); took != time.Second || asked != 2 {
			t.Errorf("it took %v and %d requests", took, asked)
		}
	})
}

func TestProbe(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	b := f.create(t, sandbox.Options{})
	probe := func(want sandbox.Health, reason string) {
		t.Helper()
		health, why, err := f.Probe(t.Context(), b.Ref().ID)
		if health != want || (err != nil) != (want == sandbox.Unknown) ||
			!strings.Contains(why+fmt.Sprint(err), reason) {
			t.Errorf("%v, %s, %v; want %v, %s", health, why, err, want, reason)
		}
	}
	probe(sandbox.Live, "started")
	for _, status := range []int{401, 403, 500, 503} {
		f.fail(99, http.MethodGet, "/sandbox/", fakedaytona.Fault{Status: status})
		probe(sandbox.Unknown, fmt.Sprint(status))
	}
	f.fail(99, http.MethodGet, "/sandbox/", fakedaytona.Fault{Drop: true})
	probe(sandbox.Unknown, "EOF")
	f.fail(99, http.MethodGet, "/sandbox/", fakedaytona.Fault{Status: 200, Body: "<html>"})
	probe(sandbox.Unknown, "can't be read")
	f.hook.Store(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if health, _, err := f.Probe(ctx, b.Ref().ID); health != sandbox.Unknown || err == nil {
		t.Errorf("%v, %v", health, err)
	}
	for _, state := range []string{"stopped", "archived", "pulling_snapshot", "resizing", "unknown"} {
		f.fake.SetState(b.Ref().ID, state, "")
		probe(sandbox.Asleep, state)
	}
	for _, state := range []string{"error", "build_failed"} {
		f.fake.SetState(b.Ref().ID, state, "the reason")
		probe(sandbox.Gone, state+": the reason")
	}
	f.fake.SetState(b.Ref().ID, "removing", "")
	probe(sandbox.Gone, "removing")
	f.fake.Vanish(b.Ref().ID)
	probe(sandbox.Gone, "not found")
}

// TestOutlast: a box that stops too early for a run gets the time for it, and none gets less than it has.
func TestOutlast(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	for _, tt := range []struct{ has, wants, want time.Duration }{
		{time.Hour, 2*time.Hour + time.Second, 2*time.Hour + time.Minute},
		{3 * time.Hour, 2 * time.Hour, 3 * time.Hour},
		{0, 2 * time.Hour, 0},
	} {
		b := f.create(t, sandbox.Options{AutoStop: tt.has})
		o := b.(interface {
			Outlast(ctx context.Context, d time.Duration) error
		})
		if err := o.Outlast(t.Context(), tt.wants); err != nil {
			t.Error(err)
		}
		for _, is := range f.fake.Boxes() {
			if got := time.Duration(is.AutoStop) * time.Minute; is.ID == b.Ref().ID && got != tt.want {
				t.Errorf("a box that stays for %v and has to for %v stays for %v", tt.has, tt.wants, got)
			}
		}
	}
}

// TestAlive asks in boxes that are well, asleep, dead, and away. Asking keeps none of them awake.
func TestAlive(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	b := f.create(t, sandbox.Options{AutoStop: time.Hour})
	p, err := b.Detach(t.Context(), script("sleep 1000"), "log")
	if err != nil {
		t.Fatal(err)
	}
	before := f.fake.Boxes()[0].Activity
	if alive, err := b.Alive(t.Context(), p); !alive || err != nil {
		t.Errorf("%v, %v", alive, err)
	}
	if after := f.fake.Boxes()[0].Activity; after != before {
		t.Error("asking kept the box awake")
	}
	for _, fault := range []fakedaytona.Fault{{Status: 502}, {Status: 401}, {Status: 404}, {Status: 500}, {Drop: true}, {Status: 200, Body: `{"exitCode":-1,"result":"fork/exec: no"}`}} {
		f.fail(1, http.MethodPost, "/process/execute", fault)
		if alive, err := b.Alive(t.Context(), p); alive || err == nil || errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%+v: %v, %v", fault, alive, err)
		}
	}
	f.hook.Store(nil)
	f.fake.SetState(b.Ref().ID, "stopped", "")
	if alive, err := b.Alive(t.Context(), p); alive || err != nil {
		t.Errorf("in a stopped box: %v, %v", alive, err)
	}
	if _, err := b.Exec(t.Context(), script("true")); err == nil || errors.Is(err, sandbox.ErrGone) ||
		!strings.Contains(err.Error(), "stopped") {
		t.Errorf("ran in a stopped box: %v", err)
	}
	again, err := f.Open(t.Context(), b.Ref().ID) // starts it
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := again.(box).Alive(t.Context(), p); alive || err != nil {
		t.Errorf("after a start: %v, %v", alive, err)
	}
	f.fake.Kill(b.Ref().ID)
	if alive, err := again.(box).Alive(t.Context(), p); alive || err == nil || errors.Is(err, sandbox.ErrGone) ||
		!strings.Contains(err.Error(), "502") {
		t.Errorf("with a dead daemon: %v, %v", alive, err)
	}
	f.fake.SetState(b.Ref().ID, "error", "out of memory")
	if _, err := again.(box).Alive(t.Context(), p); !errors.Is(err, sandbox.ErrGone) ||
		!strings.Contains(err.Error(), "out of memory") {
		t.Errorf("in a box with a fault: %v", err)
	}
}

// TestListPages lists more boxes than a page has, from a server of its own: the double's boxes take a while each.
func TestListPages(t *testing.T) {
	t.Parallel()
	const n = 450
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("limit") != "200" || q.Get("labels") != `{"arbe.house":"h"}` {
			t.Errorf("asked for %v", q)
		}
		var from int
		_, _ = fmt.Sscan(q.Get("cursor"), &from) // none is 0
		var items []map[string]any
		for i := from; i < min(from+200, n); i++ {
			items = append(items, map[string]any{
				"id": fmt.Sprint("b", i), "state": "started",
				"labels": map[string]string{"arbe.house": "h"}, "createdAt": "2026-11-20T12:00:00.000Z",
			})
		}
		page := map[string]any{"items": items, "nextCursor": nil}
		if from+200 < n {
			page["nextCursor"] = fmt.Sprint(from + 199) // one comes twice
		}
		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	p, err := daytona.New(daytona.Config{Key: "k", URL: server.URL, Transport: transport(t)})
	if err != nil {
		t.Fatal(err)
	}
	boxes, err := p.List(t.Context(), map[string]string{sandbox.LabelHouse: "h"})
	if err != nil || len(boxes) != n {
		t.Errorf("%d boxes, %v", len(boxes), err)
	}
}

// TestErrors has the messages of all shapes of Daytona's errors.
func TestErrors(t *testing.T) {
	for name, test := range map[string]struct{ kind, body, want string }{
		"control plane": {"application/json", `{"path":"/x","statusCode":422,"error":"Unprocessable","message":"no such thing"}`, "422 no such thing"},
		"toolbox":       {"application/json", `{"statusCode":422,"message":"git failed","code":"GIT","source":"DAYTONA_DAEMON"}`, "422 git failed"},
		"code alone":    {"application/json", `{"code":"SESSION_ENDED"}`, "422 SESSION_ENDED"},
		"list":          {"application/json", `{"message":["a is wrong","b is wrong"]}`, "422 a is wrong; b is wrong"},
		"errors":        {"application/json", `{"errors":["x: no space"],"files":null}`, "422 x: no space"},
		"error":         {"application/json", `{"error":"dup"}`, "422 dup"},
		"text":          {"text/plain", "404 page\nnot found\n", "422 404 page not found"},
		"page":          {"text/html", "<html>oops</html>", "422 Unprocessable Entity"},
		"nothing":       {"", "", "422 Unprocessable Entity"},
		"the key":       {"application/json", `{"message":"bad key dtn_key"}`, "422 bad key [redacted]"},
		"no object":     {"application/json", `[]`, "422 []"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			p, err := daytona.New(daytona.Config{Key: "dtn_key", URL: server.URL, Transport: transport(t)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.List(t.Context(), nil); err == nil || err.Error() != "daytona: list the boxes: "+test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestRedirect is a server that sends us elsewhere: the key goes nowhere.
func TestRedirect(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	p, err := daytona.New(daytona.Config{Key: "k", URL: server.URL, Transport: transport(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.List(t.Context(), nil); err == nil {
		t.Error("no error")
	}
}
