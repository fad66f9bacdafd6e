package fakedaytona_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakedaytona"
)

// session makes a session and returns its address.
func (c *client) session(url, id string) string {
	c.t.Helper()
	if a := c.do("POST", url+"/process/session", map[string]any{"sessionId": id}); a.status != 201 || a.body != "" {
		c.t.Fatalf("create a session: %d %s", a.status, a.body)
	}
	return url + "/process/session/" + id
}

// exec gives a session a command.
func (c *client) exec(session, command string, async bool) answer {
	c.t.Helper()
	return c.do("POST", session+"/exec", map[string]any{"command": command, "runAsync": async})
}

func TestSession(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	s := c.session(url, "s1")
	if a := c.do("POST", url+"/process/session", map[string]any{"sessionId": "s1"}); a.status != 409 {
		t.Errorf("again: %d %s", a.status, a.body)
	}
	for _, tt := range []struct {
		command, output string
		code            float64
	}{
		{"cd /; export A=1; echo x; false", "x\n", 1},
		{"pwd; echo $A", "/\n1\n", 0}, // it is one shell
		{"cat <<X\nhere\nX", "here\n", 0},
		{"printf 'no newline'", "no newline\n", 0},
		{"it's", "bash: eval: line", 2},
		{"(exit 3)", "", 3},
		{"true " + strings.Repeat("x", 200<<10), "", 0},
		{"{ sleep 0.2; echo late; } & echo x", "x\nlate\n", 0},
		{"setsid sleep 1000 >/dev/null 2>&1 & true", "", 0},
	} {
		a := c.exec(s, tt.command, false)
		if a.status != 200 || a.json["exitCode"] != tt.code || !strings.Contains(a.str("output"), tt.output) ||
			a.json["stdout"] != nil {
			t.Errorf("%.40s: %d %s", tt.command, a.status, a.body)
		}
	}
}

func TestSessionOrder(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	s := c.session(url, "s1")
	first := c.exec(s, "while [ ! -e go ]; do sleep 0.01; done; echo first | tee -a order", true)
	second := c.exec(s, "echo second | tee -a order", true)
	state := func(a answer) answer { return c.do("GET", s+"/command/"+a.str("cmdId"), nil) }
	if a := state(second); a.status != 200 || a.str("command") != "echo second | tee -a order" ||
		a.json["exitCode"] != nil {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := c.do("GET", s+"/command/"+second.str("cmdId")+"/logs", nil); a.body != "" {
		t.Errorf("the second did not wait: %s", a.body)
	}
	c.run(url, "touch go")
	await(
		t,
		"both have ended",
		func() bool { return state(first).json["exitCode"] == 0. && state(second).json["exitCode"] == 0. },
	)
	if order := c.run(url, "cat order").str("result"); order != "first\nsecond\n" {
		t.Errorf("they ran in the order %q", order)
	}
	if a := first; a.status != 202 || a.str("cmdId") == "" || len(a.json) != 5 || a.json["output"] != nil ||
		a.json["exitCode"] != nil {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := c.do("GET", s, nil); a.str("sessionId") != "s1" || len(a.json["commands"].([]any)) != 2 {
		t.Errorf("got %s", a.body)
	}
	if a := c.do("GET", url+"/process/session", nil); !strings.HasPrefix(a.body, `[{"commands":[{"command":`) {
		t.Errorf("got %s", a.body)
	}
	if a := c.do("GET", s+"/command/none", nil); a.status != 404 {
		t.Errorf("got %d", a.status)
	}
}

// An exit ends the shell, and nobody is told.
func TestSessionExit(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	s := c.session(url, "s1")
	a := c.exec(s, "exit 3", true)
	await(t, "the shell has ended", func() bool {
		a := c.exec(s, "true", true)
		return a.status == 500 && a.str("message") ==
			"failed to execute command: bad request: failed to write command: write |1: broken pipe"
	})
	if a := c.do("GET", s+"/command/"+a.str("cmdId"), nil); a.status != 200 || a.json["exitCode"] != nil {
		t.Errorf("got %d %s", a.status, a.body)
	}

	s = c.session(url, "s2")
	done := make(chan answer, 1)
	go func() { done <- c.exec(s, "exit 0", false) }()
	select {
	case a := <-done:
		t.Errorf("a command that ends its shell was answered: %d %s", a.status, a.body)
	case <-time.After(200 * time.Millisecond):
	}
	if a := c.do("DELETE", s, nil); a.status != 204 {
		t.Errorf("got %d", a.status)
	}
	<-done
}

// What was started in a session dies with it, unless it is no descendant of the shell's and in no group of it.
func TestSessionDelete(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	s := c.session(url, "s1")
	pids := map[string]string{}
	for name, command := range map[string]string{
		"background":        "sleep 1000 >/dev/null 2>&1 & echo $!",
		"nohup":             "nohup sleep 1000 >/dev/null 2>&1 & echo $!",
		"setsid nohup":      "setsid nohup sleep 1000 >/dev/null 2>&1 </dev/null & echo $!",
		"double fork":       "(nohup sleep 1000 >/dev/null 2>&1 & echo $!)",
		"double fork, away": `(setsid nohup sleep 1000 >/dev/null 2>&1 </dev/null & p=$!; while [ "$(cut -d" " -f5 /proc/$p/stat)" != $p ]; do :; done; echo $p)`,
	} {
		pids[name] = strings.TrimSpace(c.exec(s, command, false).str("output"))
		if !alive(pids[name]) {
			t.Errorf("%s: %q does not run", name, pids[name])
		}
	}
	if a := c.do("DELETE", s, nil); a.status != 204 {
		t.Errorf("got %d %s", a.status, a.body)
	}
	for name, pid := range pids {
		if name == "double fork, away" {
			if !alive(pid) {
				t.Errorf("%s has died", name)
			}
			continue
		}
		await(t, name+" has died", func() bool { return !alive(pid) })
	}
	for _, tt := range []struct {
		method, path string
		status       int
		message      string
	}{
		{"GET", "/s1", 404, "not found: session not found"},
		{"DELETE", "/s1", 404, "not found: session not found"},
		{"POST", "/s1/exec", 500, "failed to execute command: not found: session not found"}, // not 404
		{"POST", "/entrypoint/exec", 400, "entrypoint"},
		{"DELETE", "/entrypoint", 400, "entrypoint"},
	} {
		var body any
		if tt.method == "POST" {
			body = `{"command":"true"}`
		}
		if a := c.do(tt.method, url+"/process/session"+tt.path, body); a.status != tt.status ||
			!strings.Contains(a.str("message"), tt.message) {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.status, a.body)
		}
	}
}

// What a daemon knows of sessions dies with it.
func TestSessionForgotten(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	id, url := c.box()
	c.exec(c.session(url, "s1"), "echo x", false)
	c.api("POST", "/sandbox/"+id+"/stop", nil)
	c.api("POST", "/sandbox/"+id+"/start", nil)
	if a := c.do("GET", url+"/process/session", nil); a.body != "[]\n" {
		t.Errorf("got %s", a.body)
	}
	if a := c.run(url, "cat .daytona/sessions/s1/*/output.log"); a.str("result") != "\x01\x01\x01x\n" {
		t.Errorf("the files: %s", a.body)
	}
}

// A session id that is a path would be a folder that Daytona makes and removes: that is held against whoever sends it.
func TestSessionPath(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"../../evil", "/etc", "..", "a/b"} {
		tb := &complaints{TB: t}
		s := fakedaytona.New(tb)
		c := &client{t, s, http.Header{"Authorization": {"Bearer " + s.Key}}}
		_, url := c.box()
		if a := c.do("POST", url+"/process/session", map[string]any{"sessionId": id}); a.status != 400 ||
			tb.n.Load() != 1 {
			t.Errorf("%s: %d %s", id, a.status, a.body)
		}
	}
}

// complaints counts errors in place of failing.
type complaints struct {
	testing.TB
	n atomic.Int32
}

func (c *complaints) Errorf(string, ...any) { c.n.Add(1) }
