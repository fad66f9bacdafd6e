package fakedaytona_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.box(map[string]any{"name": "taken"})
	for _, tt := range []struct {
		name    string
		body    string
		status  int
		message string
	}{
		{"nothing said", `{}`, 200, ""},
		{
			"unknown snapshot", `{"snapshot":"none"}`, 400,
			"Snapshot none not found. Did you add it through the Daytona Dashboard?",
		},
		{"duplicate name", `{"name":"taken"}`, 409, "Sandbox with name taken already exists"},
		{
			"resources with a snapshot", `{"snapshot":"daytonaio/sandbox:0.8.0","cpu":2}`, 400,
			"Cannot specify Sandbox resources when using a snapshot",
		},
		{"resources alone", `{"memory":2}`, 400, "Cannot specify Sandbox resources when using a snapshot"},
		{"resources of an image", `{"buildInfo":{"dockerfileContent":"FROM node:22-bookworm\n"},"cpu":2}`, 200, ""},
		{
			"a snapshot and an image", `{"snapshot":"daytonaio/sandbox:0.8.0","buildInfo":{"dockerfileContent":"FROM a"}}`,
			400, "Cannot specify a snapshot when using a build info entry",
		},
		{"no such volume", `{"volumes":[{"volumeId":"v","mountPath":"/v"}]}`, 404, "Volume 'v' not found"},
		{"a bad mount", `{"volumes":[{"volumeId":"v","mountPath":"/etc/v"}]}`, 400, "Invalid mount path /etc/v"},
		{"no JSON", `{`, 400, "unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := c.api("POST", "/sandbox", tt.body)
			if a.status != tt.status || a.str("message") != tt.message {
				t.Errorf("got %d %s", a.status, a.body)
			}
			if want := http.StatusText(tt.status); tt.status != 200 &&
				(a.str("error") != want || a.str("path") != "/api/sandbox" ||
					a.json["statusCode"] != float64(tt.status)) {
				t.Errorf("got %s", a.body)
			}
		})
	}
}

// What the specification requires of a record is in it, and what was asked for, and the defaults.
func TestRecord(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	required := []string{
		"id", "organizationId", "name", "user", "labels", "public", "networkBlockAll", "target", "cpu", "gpu", "memory",
		"disk", "toolboxProxyUrl",
	}
	a := c.api("POST", "/sandbox", `{"target":"us","labels":{"a":"1"},"env":{"X":"y"}}`)
	for _, key := range append(required, "env") {
		if _, ok := a.json[key]; !ok {
			t.Errorf("there is no %s in %s", key, a.body)
		}
	}
	for key, want := range map[string]any{
		"state": "started", "desiredState": "started", "autoStopInterval": 15., "autoDeleteInterval": -1.,
		"snapshot": "daytonaio/sandbox:0.5.0-slim", "target": "us",
		"labels": map[string]any{"a": "1"}, "env": map[string]any{"X": "y"}, "daemonVersion": fakedaytona.Version,
	} {
		if got := a.json[key]; !cmp.Equal(got, want) {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if got := c.api("GET", "/sandbox/"+a.str("name"), nil); got.status != 200 || !cmp.Equal(got.json, a.json) {
		t.Errorf("asked again: %d %s", got.status, cmp.Diff(a.json, got.json))
	}
	item := c.api("GET", "/sandbox", nil).json["items"].([]any)[0].(map[string]any)
	for _, key := range required {
		if _, ok := item[key]; !ok {
			t.Errorf("there is no %s in the list", key)
		}
	}
	if _, ok := item["env"]; ok {
		t.Error("the environment is in the list")
	}
	proxy := c.api("GET", "/sandbox/"+a.str("id")+"/toolbox-proxy-url", nil)
	if proxy.str("url") != a.str("toolboxProxyUrl") {
		t.Errorf("the proxy is at %s, and at %s", proxy.body, a.str("toolboxProxyUrl"))
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.s.StartAfter = time.Hour
	id, url := c.box()
	if a := c.api("GET", "/sandbox/"+id, nil); a.str("state") != "creating" {
		t.Errorf("got %s", a.body)
	}
	if a := c.api("DELETE", "/sandbox/"+id, nil); a.status != 409 ||
		a.str("message") != "Sandbox state change in progress" {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	if a := c.run(url, "true"); a.status != 400 {
		t.Errorf("execute: %d %s", a.status, a.body)
	}
	c.s.Tick(time.Hour)
	if a := c.api("GET", "/sandbox/"+id, nil); a.str("state") != "started" {
		t.Errorf("got %s", a.body)
	}
	pid := strings.TrimSpace(
		c.run(url, "touch kept; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!").str("result"),
	)
	if !alive(pid) {
		t.Errorf("%q does not run", pid)
	}
	if a := c.api("POST", "/sandbox/"+id+"/stop", nil); a.status != 200 || a.str("state") != "stopping" || alive(pid) {
		t.Errorf("stop: %d %s, what ran lives: %v", a.status, a.body, alive(pid))
	}
	if a := c.api("POST", "/sandbox/"+id+"/stop", nil); a.status != 400 {
		t.Errorf("stop again: %d %s", a.status, a.body)
	}
	c.s.Set(func(s *fakedaytona.Server) { s.StartAfter = 0 })
	if a := c.api("POST", "/sandbox/"+id+"/start", nil); a.status != 200 || a.str("state") != "started" {
		t.Errorf("start: %d %s", a.status, a.body)
	}
	if a := c.run(url, "ls"); a.str("result") != "kept\n" {
		t.Errorf("files after a stop: %s", a.body)
	}

	c.s.Set(func(s *fakedaytona.Server) { s.FailStart = "no runner" })
	if a := c.api("POST", "/sandbox", `{"labels":{"bad":"1"}}`); a.status != 400 ||
		a.str("message") != "Sandbox failed to start: no runner" {
		t.Errorf("got %d %s", a.status, a.body)
	}
	a := c.api("GET", "/sandbox?labels="+escape(`{"bad":"1"}`), nil)
	if !strings.Contains(a.body, `"state":"error"`) || !strings.Contains(a.body, `"errorReason":"no runner"`) {
		t.Errorf("the record of a box that failed to start: %s", a.body)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	var ids []string
	for i := range 5 {
		id, _ := c.box(
			map[string]any{"name": fmt.Sprintf("n%d", i), "labels": map[string]string{"app": "x", "odd": fmt.Sprint(i % 2)}},
		)
		ids = append(ids, id)
	}
	c.api("POST", "/sandbox/"+ids[4]+"/stop", nil)
	for _, tt := range []struct {
		query  string
		status int
		want   []int // indexes of boxes, the newest first
	}{
		{"", 200, []int{4, 3, 2, 1, 0}},
		{"limit=2", 200, []int{4, 3, 2, 1, 0}}, // in pages
		{"limit=0", 400, nil},
		{"limit=201", 400, nil},
		{"labels=" + escape(`{"app":"x","odd":"1"}`), 200, []int{3, 1}},
		{"labels=" + escape(`{"app":"x","odd":"2"}`), 200, nil},
		{"labels=" + escape(`{`), 400, nil},
		{"states=stopped", 200, []int{4}},
		{"states=stopped&states=started&limit=1", 200, []int{4, 3, 2, 1, 0}},
		{"states=destroyed", 400, nil},
		{"name=n3", 200, []int{3}},
		{"id=" + ids[2][:8], 200, []int{2}},
		{"cursor=x", 400, nil},
	} {
		t.Run(tt.query, func(t *testing.T) {
			var got []int
			for cursor := ""; ; {
				a := c.api("GET", "/sandbox?"+tt.query+cursor, nil)
				if a.status != tt.status {
					t.Fatalf("got %d %s", a.status, a.body)
				}
				items, _ := a.json["items"].([]any)
				for _, item := range items {
					got = append(got, slices.Index(ids, item.(map[string]any)["id"].(string)))
				}
				if cursor = "&cursor=" + escape(a.str("nextCursor")); a.str("nextCursor") == "" {
					break
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.s.DestroyAfter, c.s.ListLag = time.Minute, time.Minute
	id, url := c.box(map[string]any{"name": "n"})
	pid := strings.TrimSpace(c.run(url, "setsid sleep 1000 >/dev/null 2>&1 & echo $!").str("result"))
	if !alive(pid) {
		t.Errorf("%q does not run", pid)
	}
	if a := c.api("DELETE", "/sandbox/"+id, nil); a.status != 200 || a.str("state") != "destroying" {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := c.api("DELETE", "/sandbox/"+id, nil); a.status != 409 {
		t.Errorf("again: %d %s", a.status, a.body)
	}
	if alive(pid) {
		t.Error("what ran in the box still does")
	}
	c.box(map[string]any{"name": "n"}) // is free
	listed := func() bool { return strings.Contains(c.api("GET", "/sandbox", nil).body, id) }
	for _, tt := range []struct {
		after  time.Duration
		status int
		listed bool
	}{{0, 200, true}, {time.Minute, 404, true}, {time.Minute, 404, false}} {
		c.s.Tick(tt.after)
		if a := c.api("GET", "/sandbox/"+id, nil); a.status != tt.status || listed() != tt.listed {
			t.Errorf("got %d, listed %v, want %v", a.status, listed(), tt)
		}
	}
	if a := c.api("DELETE", "/sandbox/"+id, nil); a.status != 404 ||
		a.str("message") != "Sandbox with ID or name "+id+" not found" {
		t.Errorf("a deleted box: %d %s", a.status, a.body)
	}
	if n := len(c.s.Boxes()); n != 1 {
		t.Errorf("there are %d boxes", n)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	id, _ := c.box(map[string]any{"labels": map[string]string{"a": "1", "b": "2"}})
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/labels", `{"labels":{"c":"3"}}`, 200, `{"labels":{"c":"3"}}`}, // in place of all
		{"PUT", "/labels", `{}`, 400, `"labels must be an object"`},
		{"POST", "/autostop/0", "", 200, `"autoStopInterval":0`},
		{"POST", "/autostop/x", "", 400, `"message"`},
		{"POST", "/autodelete/0", "", 200, `"autoDeleteInterval":0`},
		{"POST", "/last-activity", "", 201, ""},
		{"POST", "/pty", "", 404, `"Not Found"`},
	} {
		if a := c.api(tt.method, "/sandbox/"+id+tt.path, tt.body); a.status != tt.status ||
			!strings.Contains(a.body, tt.want) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.status, a.body)
		}
	}
	b := c.s.Boxes()[0]
	if b.AutoStop != 0 || b.AutoDelete != 0 || !cmp.Equal(b.Labels, map[string]string{"c": "3"}) {
		t.Errorf("got %+v", b)
	}
	for _, key := range []string{"", "Bearer wrong", c.s.Key} {
		if a := c.with("Authorization", key).api("GET", "/sandbox", nil); a.status != 401 ||
			a.json["statusCode"] != 401. {
			t.Errorf("with %q: %d %s", key, a.status, a.body)
		}
	}
}

func TestFault(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	faulty := func(f fakedaytona.Fault) func(*http.Request) fakedaytona.Fault {
		return func(r *http.Request) fakedaytona.Fault {
			var q struct{ Name string }
			if err := json.NewDecoder(r.Body).Decode(&q); err == nil && q.Name == "faulty" { // a hook may read the body
				return f
			}
			return fakedaytona.Fault{}
		}
	}
	for _, tt := range []struct {
		fault   fakedaytona.Fault
		status  int // 0 for no answer
		applied bool
	}{
		{fakedaytona.Fault{Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: "slow down"}, 429, false},
		{fakedaytona.Fault{Drop: true}, 0, false},
		{fakedaytona.Fault{Drop: true, After: true}, 0, true},
		{fakedaytona.Fault{After: true}, 0, true},
		{fakedaytona.Fault{Status: 502, After: true}, 502, true},
		{fakedaytona.Fault{}, 200, true},
	} {
		c.s.Set(func(s *fakedaytona.Server) { s.Fault = faulty(tt.fault) })
		a, err := c.try("POST", c.s.URL+"/sandbox", `{"name":"faulty"}`)
		if a.status != tt.status || (err != nil) != (tt.status == 0) {
			t.Errorf("%+v: %d, %v", tt.fault, a.status, err)
		}
		if tt.status != 200 && a.body != tt.fault.Body || tt.status == 429 && a.header.Get("Retry-After") != "7" {
			t.Errorf("%+v: %q %v", tt.fault, a.body, a.header)
		}
		boxes := c.s.Boxes()
		if applied := len(boxes) == 1; applied != tt.applied {
			t.Errorf("%+v: %d boxes", tt.fault, len(boxes))
		}
		for _, b := range boxes {
			c.api("DELETE", "/sandbox/"+b.ID, nil)
		}
	}
	if q := c.s.Requests()[0]; q.Method != "POST" || q.Path != "/api/sandbox" || string(q.Body) != `{"name":"faulty"}` ||
		!slices.Contains(q.Header, "Authorization") {
		t.Errorf("the first request: %+v", q)
	}
}
