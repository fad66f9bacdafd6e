package fakedaytona_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/fakedaytona"
	"arbe.0sk.ar/runner/internal/test/surroundings"
)

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
	json   map[string]any // where it is an object
}

// str is a string of the answer's, "" where it is none.
func (a answer) str(key string) string {
	s, _ := a.json[key].(string)
	return s
}

// client is a plain HTTP client.
type client struct {
	t      *testing.T
	s      *fakedaytona.Server
	header http.Header
}

func newClient(t *testing.T) *client {
	s := fakedaytona.New(t)
	return &client{t, s, http.Header{"Authorization": {"Bearer " + s.Key}}}
}

// with is the client with another header; without where value is "".
func (c *client) with(key, value string) *client {
	h := c.header.Clone()
	if h.Set(key, value); value == "" {
		h.Del(key)
	}
	return &client{c.t, c.s, h}
}

// do sends a request, with a body that is JSON or, where it is a reader, of the content type kind.
func (c *client) do(method, url string, body any, kind ...string) answer {
	c.t.Helper()
	a, err := c.try(method, url, body, kind...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *client) try(method, url string, body any, kind ...string) (answer, error) {
	c.t.Helper()
	var from io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		from = b
	case string:
		from = strings.NewReader(b)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		from = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, url, from)
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header = c.header.Clone()
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if len(kind) > 0 {
		r.Header.Set("Content-Type", kind[0])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(text)}
	_ = json.Unmarshal(text, &a.json) // not all are
	return a, nil
}

// api asks the control plane.
func (c *client) api(method, path string, body any) answer {
	c.t.Helper()
	return c.do(method, c.s.URL+path, body)
}

// box makes a box and returns the address of its toolbox.
func (c *client) box(more ...map[string]any) (id, url string) {
	c.t.Helper()
	q := map[string]any{}
	for _, m := range more {
		q = m
	}
	a := c.api("POST", "/sandbox", q)
	if a.status != http.StatusOK {
		c.t.Fatalf("create: %d %s", a.status, a.body)
	}
	return a.str("id"), a.str("toolboxProxyUrl") + "/" + a.str("id")
}

// run executes a command in a box.
func (c *client) run(url, command string) answer {
	c.t.Helper()
	return c.do("POST", url+"/process/execute", map[string]any{"command": command})
}

// alive reports whether a process is there, and has not ended without anybody having noticed.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return pid != "" && err == nil && !strings.Contains(string(stat), ") Z ")
}

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for late := time.Now().Add(5 * time.Minute); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%s: it did not come to that", what)
		}
	}
}

// leaks are the goroutines that run when all should have ended.
func leaks() string {
	http.DefaultClient.CloseIdleConnections()
	for range 30_000 {
		if runtime.NumGoroutine() <= 2 { // this one, and that of the signals
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

func TestMain(m *testing.M) {
	surroundings.Enter()
	code := m.Run()
	if left := leaks(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}
