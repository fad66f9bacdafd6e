package fakedaytona_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	id, url := c.box()
	if a := c.do("GET", url+"/version", nil); a.body != `{"version":"v0.190.0"}`+"\n" {
		t.Errorf("got %d %s", a.status, a.body)
	}
	gone, goneURL := c.box()
	c.s.Vanish(gone)
	stopped, stoppedURL := c.box()
	c.api("POST", "/sandbox/"+stopped+"/stop", nil)
	archived, archivedURL := c.box()
	c.s.SetState(archived, "archived", "")
	broken, brokenURL := c.box()
	c.s.SetState(broken, "error", "disk full")
	dead, deadURL := c.box()
	c.s.Kill(dead)
	for _, tt := range []struct {
		name, id, url, auth string
		status              int
		message             string
		state               int // the answer of the control plane
	}{
		{"no key", id, url, "", 401, "missing authentication", 200},
		{"wrong key", id, url, "Bearer x", 401, "authentication failed: Bearer token is invalid", 200},
		{
			"no such box", "none", strings.Replace(url, id, "none", 1), "right", 401,
			"authentication failed: Bearer token is invalid", 404,
		},
		{"vanished", gone, goneURL, "right", 401, "authentication failed: Bearer token is invalid", 404},
		{"stopped", stopped, stoppedURL, "right", 400, "no IP address found. Is the Sandbox started?", 200},
		{"archived", archived, archivedURL, "right", 404, "not found: sandbox container not found", 200},
		{"error", broken, brokenURL, "right", 400, "no IP address found. Is the Sandbox started?", 200},
		{"dead", dead, deadURL, "right", 502, "", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			as := c
			if tt.auth != "right" {
				as = c.with("Authorization", tt.auth)
			}
			a := as.run(tt.url, "true")
			if a.status != tt.status || !strings.Contains(a.str("message"), tt.message) {
				t.Errorf("got %d %s", a.status, a.body)
			}
			if a.status == 502 && a.body != "" {
				t.Errorf("got %q", a.body)
			}
			if a.status != 502 &&
				(a.json["statusCode"] != float64(tt.status) || a.str("code") == "" || a.str("method") != "POST" ||
					a.str("path") == "") {
				t.Errorf("got %s", a.body)
			}
			if a := c.api("GET", "/sandbox/"+tt.id, nil); a.status != tt.state {
				t.Errorf("the control plane: %d %s", a.status, a.body)
			}
		})
	}
	if a := c.api("GET", "/sandbox/"+dead, nil); a.str("state") != "started" {
		t.Errorf("a box whose daemon is dead: %s", a.body)
	}
	if a := c.api("GET", "/sandbox/"+broken, nil); a.str("errorReason") != "disk full" {
		t.Errorf("a broken box: %s", a.body)
	}
	c.s.SetState(dead, "started", "")
	if a := c.run(deadURL, "echo back"); a.str("result") != "back\n" {
		t.Errorf("revived: %d %s", a.status, a.body)
	}
	if a := c.do("GET", url+"/port", nil); a.status != 404 ||
		a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("what there is not: %d %s", a.status, a.body)
	}
}

// For a while after a box has gone, the proxy doesn't know.
func TestProxyCache(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	c.s.ProxyCache = 2 * time.Minute
	id, url := c.box()
	c.run(url, "true")
	c.s.Vanish(id)
	if a := c.run(url, "true"); a.status != 404 || !strings.Contains(a.str("message"), "sandbox container not found") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	c.s.Tick(2 * time.Minute)
	if a := c.run(url, "true"); a.status != 401 {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

// A command that is running when its box dies is a 502, and what it started is gone.
func TestDeath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(c *client, id string)
	}{
		{"kill", func(c *client, id string) { c.s.Kill(id) }},
		{"vanish", func(c *client, id string) { c.s.Vanish(id) }},
		{"stop", func(c *client, id string) { c.api("POST", "/sandbox/"+id+"/stop", nil) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t)
			id, url := c.box()
			pid := strings.TrimSpace(c.run(url, "setsid sleep 1000 >/dev/null 2>&1 & echo $!").str("result"))
			c.do("POST", url+"/process/session", map[string]any{"sessionId": "s"})
			running := make(chan answer)
			for path, command := range map[string]string{
				"/process/execute":        "touch x; sleep 1000",
				"/process/session/s/exec": "touch s; sleep 1000",
			} {
				go func() { running <- c.do("POST", url+path, map[string]any{"command": command}) }()
			}
			for !strings.Contains(c.do("GET", url+"/files", nil).body, `"x"`) || !strings.Contains(c.do("GET", url+"/files", nil).body, `"s"`) {
				time.Sleep(time.Millisecond)
			}
			tt.end(c, id)
			for range 2 {
				if a := <-running; a.status != http.StatusBadGateway || a.body != "" {
					t.Errorf("got %d %s", a.status, a.body)
				}
			}
			if alive(pid) {
				t.Errorf("%s lives", pid)
			}
		})
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	idle, url := c.box(map[string]any{"autoStopInterval": 10})
	never, _ := c.box(map[string]any{"autoStopInterval": 0})
	ephemeral, _ := c.box(map[string]any{"autoStopInterval": 10, "autoDeleteInterval": 0})
	busy, busyURL := c.box(map[string]any{"autoStopInterval": 10})
	quiet := c.with("X-Daytona-Skip-Last-Activity-Update", "true")

	c.s.Tick(6 * time.Minute)
	c.run(url, "setsid sleep 1000 >/dev/null 2>&1 &") // is activity; that it runs is none
	quiet.run(busyURL, "true")
	if b := c.s.Boxes(); b[0].Activity != 1 || b[3].Activity != 0 {
		t.Errorf("activity: %d and %d", b[0].Activity, b[3].Activity)
	}
	done := make(chan answer)
	go func() { done <- c.run(busyURL, "while [ ! -e stop ]; do sleep 0.01; done") }()
	for c.s.Boxes()[3].Activity == 0 {
		time.Sleep(time.Millisecond)
	}
	states := func(want ...string) {
		t.Helper()
		for i, id := range []string{idle, never, ephemeral, busy} {
			if a := c.api("GET", "/sandbox/"+id, nil); a.str("state") != want[i] {
				t.Errorf("box %d is %q, want %q", i, a.str("state"), want[i])
			}
		}
	}
	c.s.Tick(6 * time.Minute)
	states("started", "started", "", "started")
	c.s.Tick(6 * time.Minute)
	states("stopped", "started", "", "started") // a request is open
	quiet.run(busyURL, "touch stop")
	<-done
	c.s.Tick(9 * time.Minute)
	states("stopped", "started", "", "started")
	c.s.Tick(9 * time.Minute)
	states("stopped", "started", "", "stopped")
}
