package fakedaytona_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestExecute(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box(map[string]any{"env": map[string]string{"BOX": "yes"}})
	home := c.do("GET", url+"/user-home-dir", nil).str("dir")
	if err := os.Mkdir(filepath.Join(home, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	for _, tt := range []struct {
		name   string
		q      any
		status int
		code   float64
		result string
	}{
		{"both outputs and the status", m{"command": "echo out; echo err >&2; exit 7"}, 200, 7, "out\nerr\n"},
		{"envs", m{"command": "echo $A $BOX", "envs": m{"A": "a"}}, 200, 0, "a yes\n"},
		{"env is not known", m{"command": "echo $A", "env": m{"A": "a"}}, 200, 0, "\n"},
		{"bad name of an environment variable", m{"command": "true", "envs": m{"A-B": "a"}}, 400, 0, ""},
		{"home", m{"command": "pwd; echo $HOME"}, 200, 0, home + "\n" + home + "\n"},
		{"relative directory", m{"command": "pwd", "cwd": "sub"}, 200, 0, home + "/sub\n"},
		{
			"no such directory",
			m{"command": "true", "cwd": "none"},
			200, -1,
			"fork/exec /usr/bin/bash: no such file or directory",
		},
		{"the rest is eaten", m{"command": "cat\necho x"}, 200, 0, "echo x"},
		{"the rest is not eaten", m{"command": "cat </dev/null\necho x"}, 200, 0, "x\n"},
		{"here document", m{"command": "cat <<X\nhere\nX"}, 200, 0, "here\n"},
		{"killed", m{"command": "echo a; kill -9 $$"}, 200, -1, "a\n"},
		{"not UTF-8", m{"command": `printf 'a\377b'`}, 200, 0, "a\ufffdb"},
		{"long", m{"command": "true " + strings.Repeat("x", 400<<10) + "\necho done"}, 200, 0, "done\n"},
		{"empty", m{"command": ""}, 400, 0, ""},
		{"no command", m{}, 400, 0, ""},
		{"negative timeout", m{"command": "true", "timeout": -1}, 400, 0, ""},
		{"timeout as text", m{"command": "true", "timeout": "1"}, 400, 0, ""},
		{"timeout as float", `{"command":"true","timeout":1.5}`, 400, 0, ""},
		{"timeout", m{"command": "echo partial; sleep 1000", "timeout": 1}, 408, 0, ""},
		{"detached", m{"command": "nohup sleep 1000 >/dev/null 2>&1 &"}, 200, 0, ""},
		{"background with the output", m{"command": "{ sleep 0.2; echo late; } & echo x"}, 200, 0, "x\nlate\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := c.do("POST", url+"/process/execute", tt.q)
			if a.status != tt.status || a.str("result") != tt.result || tt.status == 200 &&
				a.json["exitCode"] != tt.code {
				t.Errorf("got %d %.300s", a.status, a.body)
			}
			switch {
			case tt.status == 400 && strings.Contains(tt.name, "command"), tt.name == "empty":
				if a.json["statusCode"] != 400. || a.str("message") == "" {
					t.Errorf("got %q", a.body)
				}
			case tt.status == 408 && (a.str("message") != "request timeout: command execution timeout" ||
				a.str("path") != "/process/execute"):
				t.Errorf("got %s", a.body)
			}
		})
	}
}

// The time limit kills the process group. What has left it is spared, and keeps the client waiting when it holds the
// output.
func TestTimeout(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	home := c.s.Boxes()[0].Home
	a := c.do("POST", url+"/process/execute", map[string]any{
		"command": "nohup sleep 1000 >/dev/null 2>&1 & echo $! >same; setsid sleep 1000 >/dev/null 2>&1 & echo $! " +
			">other; wait", "timeout": 10, // enough to start them, on a busy machine, too
	})
	if a.status != http.StatusRequestTimeout {
		t.Errorf("got %d %s", a.status, a.body)
	}
	pid := func(name string) string {
		b, err := os.ReadFile(filepath.Join(home, name))
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(b))
	}
	await(t, "the group is killed", func() bool { return !alive(pid("same")) })
	if !alive(pid("other")) {
		t.Error("what has left the group is killed")
	}

	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(
		ctx,
		"POST",
		url+"/process/execute",
		strings.NewReader(`{"command":"setsid sleep 1000 & echo $! >holder","timeout":10}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = c.header
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Errorf("got %d", resp.StatusCode)
	}
	if !alive(pid("holder")) { // neither the limit nor the client's going ends it
		t.Error("the holder of the output is killed")
	}
}

// The way to start what is to stay, and to ask for it later.
func TestDetach(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	_, url := c.box()
	a := c.do("POST", url+"/process/execute", map[string]any{
		"command": `umask 077; setsid sh -c 'echo $WHO; sleep 1000' >w.log 2>&1 </dev/null & p=$!; echo "$p $(cut -d" " -f22 /proc/$p/stat)" | tee w.pid`,
		"envs":    map[string]string{"WHO": "me"}, "timeout": 10,
	})
	pid, _, _ := strings.Cut(a.str("result"), " ")
	if a.status != 200 || !alive(pid) {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	probe := `read p s < w.pid; [ "$(cut -d" " -f22 /proc/$p/stat 2>/dev/null)" = "$s" ] && echo alive || echo dead`
	await(t, "it has said something", func() bool { return c.run(url, "cat w.log").str("result") == "me\n" })
	if got := c.run(url, probe).str("result"); got != "alive\n" {
		t.Errorf("it is %s", got)
	}
	c.run(url, "kill -9 -"+pid)
	await(t, "it has ended", func() bool { return !alive(pid) }) // to the probe it is there until init has noticed
	if got := c.run(url, "echo 4194305 0 >w.pid; "+probe).str("result"); got != "dead\n" {
		t.Errorf("one that there is not is %s", got)
	}
}
