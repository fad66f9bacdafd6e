package fakedaytona_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestSessionShapes(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	s := c.session(url, "s1")
	for _, tt := range []struct {
		header, value string
		out, err      string // the parts of the output. Each comes through a pipe of its own: either may come first
		split, json   bool
	}{
		{"X-None", "x", "o\n", "e\n", false, false},
		{"X-Daytona-Split-Output", "true", "\x01\x01\x01o\n", "\x02\x02\x02e\n", false, false},
		{"X-Daytona-SDK-Version", "0.218.0", "o\n", "e\n", true, true},
		{"X-Daytona-SDK-Version", "0.167.0", "o\n", "e\n", true, true},
		{"X-Daytona-SDK-Version", "0.166.9", "o\n", "e\n", false, false},
		{"X-Daytona-SDK-Version", "1.0.0", "o\n", "e\n", true, true},
	} {
		c := c.with(tt.header, tt.value)
		a := c.exec(s, "echo o; echo e >&2", false)
		output := a.str("output")
		if output != tt.out+tt.err && output != tt.err+tt.out || tt.split &&
			(a.str("stdout") != "o\n" || a.str("stderr") != "e\n") ||
			!tt.split && a.json["stdout"] != nil {
			t.Errorf("%s %s: %s", tt.header, tt.value, a.body)
		}
		logs := c.do("GET", s+"/command/"+a.str("cmdId")+"/logs?follow=true", nil) // which is for websockets
		switch {
		case tt.json && (logs.str("output") != output || logs.str("stdout") != "o\n" || logs.str("stderr") != "e\n"):
			t.Errorf("%s %s: logs %s", tt.header, tt.value, logs.body)
		case !tt.json && (logs.body != output || !strings.HasPrefix(logs.header.Get("Content-Type"), "text/plain")):
			t.Errorf("%s %s: logs %q", tt.header, tt.value, logs.body)
		}
	}
}

// TestSessionBytes: zero bytes of an output vanish, and a mark in it switches the stream.
func TestSessionBytes(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box(map[string]any{
		"env": map[string]string{"dir": "theirs", "log": "theirs", "sp": "theirs", "ep": "theirs", "ip": "theirs"},
	})
	s := c.session(url, "s1")
	a := c.with("X-Daytona-SDK-Version", "0.218.0").exec(s, `printf 'a\000b\002\002\002c\nd\n'`, false)
	if a.str("stdout") != "abd\n" || a.str("stderr") != "c\n" {
		t.Errorf("got %s", a.body)
	}
	// The session's own variables replace the box's.
	a = c.exec(s, `sh -c 'echo $dir$log$sp$ep$ip'`, false)
	if out := a.str("output"); strings.Contains(out, "theirs") || len(out) < 100 {
		t.Errorf("variables: %s", out)
	}
}

// follow reads a log to its end, and calls seen with what there is of it after each frame.
func (c *client) follow(url string, seen func(log string)) (log string, frames int, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Minute)
	defer cancel()
	ws, resp, err := websocket.Dial(
		ctx,
		"ws"+strings.TrimPrefix(url, "http")+"/logs?follow=true",
		&websocket.DialOptions{HTTPHeader: c.header},
	)
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%d", resp.StatusCode)
		}
		return "", 0, err
	}
	defer ws.CloseNow()
	for {
		kind, b, err := ws.Read(ctx)
		if err != nil {
			return log, frames, err
		}
		if kind != websocket.MessageBinary {
			return log, frames, fmt.Errorf("a frame that is not binary: %q", b)
		}
		log += string(b)
		frames++
		seen(log)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	s := c.session(url, "s1")
	marked := c.with("X-Daytona-SDK-Version", "0.218.0")
	// A command that continues once its follower has read a letter, so that the next piece comes alone.
	read := func(letter string) string {
		return "while [ ! -e read-" + letter + " ]; do sleep 0.01; done; rm read-" + letter
	}
	for _, tt := range []struct {
		as            *client
		command, want string
	}{
		{marked, "echo a; " + read("a") + "; echo b >&2; " + read("b") + "; printf ü", "\x01\x01\x01a\n\x02\x02\x02b\n\x01\x01\x01ü\n"},
		{c, "echo a; " + read("a") + "; echo b >&2", "a\nb\n"},
		{c, "seq 30000", ""},
		{c, "true", ""},
	} {
		a := c.exec(s, tt.command, true)
		got, frames, err := tt.as.follow(s+"/command/"+a.str("cmdId"), func(log string) {
			for _, letter := range []string{"a", "b"} {
				if strings.HasSuffix(log, letter+"\n") {
					c.run(url, "touch read-"+letter)
				}
			}
		})
		if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%s: %v", tt.command, err)
		}
		if tt.command == "seq 30000" {
			if n := strings.Count(got, "\n"); n != 30000 || len(got) != 168894 {
				t.Errorf("%d lines of %d bytes", n, len(got))
			}
		} else if got != tt.want {
			t.Errorf("%s: %q", tt.command, got)
		}
		if tt.as == marked && frames < 6 {
			t.Errorf("the marks were not cut: %d frames", frames)
		}
	}
	if _, _, err := c.follow(s+"/command/none", func(string) {}); err == nil || err.Error() != "404" {
		t.Errorf("a command that there is not: %v", err)
	}

	a := c.exec(s, "echo here; sleep 1000", true)
	type followed struct {
		log string
		err error
	}
	done, seen := make(chan followed, 1), make(chan struct{})
	go func() {
		log, _, err := c.follow(s+"/command/"+a.str("cmdId"), func(log string) {
			if log == "here\n" {
				close(seen)
			}
		})
		done <- followed{log, err}
	}()
	select {
	case <-seen:
	case f := <-done:
		t.Fatalf("the log ended early: %q, %v", f.log, f.err)
	}
	if got := c.do("GET", s+"/command/"+a.str("cmdId")+"/logs", nil).body; got != "here\n" {
		t.Errorf("the log has %q", got)
	}
	c.do("DELETE", s, nil)
	if f := <-done; f.log != "here\n" || websocket.CloseStatus(f.err) != websocket.StatusNormalClosure {
		t.Errorf("the session was deleted: %q, %v", f.log, f.err)
	}
}

func TestInput(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	s := c.session(url, "s1")
	for _, quiet := range []bool{false, true} {
		a := c.do(
			"POST",
			s+"/exec",
			map[string]any{"command": "read x; echo got $x", "runAsync": true, "suppressInputEcho": quiet},
		)
		cmd := s + "/command/" + a.str("cmdId")
		if a := c.do("POST", cmd+"/input", map[string]any{"data": "a line"}); a.status != 204 {
			t.Errorf("got %d %s", a.status, a.body)
		}
		await(t, "it has ended", func() bool { return c.do("GET", cmd, nil).json["exitCode"] == 0. })
		log := c.do("GET", cmd+"/logs", nil).body
		if echoed := strings.Contains(log, "a line\n"+"got") || strings.HasSuffix(log, "\na line\n"); !strings.Contains(
			log,
			"got a line\n",
		) ||
			echoed == quiet {
			t.Errorf("quiet %v: %q", quiet, log)
		}
		if a := c.do("POST", cmd+"/input", map[string]any{"data": "late"}); a.status != http.StatusGone {
			t.Errorf("got %d %s", a.status, a.body)
		}
	}
}
