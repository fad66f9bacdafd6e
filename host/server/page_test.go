package server_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// The reader in docs/examples prints a recorded thread, of which the last entries come while it reads.
func TestTypeScriptReader(t *testing.T) {
	if testing.Short() {
		t.Skip("Node is left out")
	}
	t.Parallel()
	program, err := os.ReadFile("../../docs/examples/read.ts")
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := os.ReadFile("../../testdata/threads/pushed.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for _, line := range bytes.Split(bytes.TrimSpace(recorded), []byte("\n")) {
		e, err := thread.ParseStored(line)
		if err != nil {
			t.Fatal(err)
		}
		e.At = ""
		entries = append(entries, string(e.AppendJSON(nil)))
	}
	reading := make(chan struct{})
	url := serveBehind(t, engines["pebble"](t), func(*server.Server) {}, signalled(reading))
	post := func(entries []string) {
		body := "[" + strings.Join(entries, ",") + "]"
		c := call{method: "POST", path: "/arbe-thread-demo", token: writer(t, "demo"), body: body}
		if a := c.do(t, url+"/api/stream"); a.status != 200 {
			t.Errorf("got %+v", a)
		}
	}
	last := len(entries) - 5
	post(entries[:last])
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-reading:
			post(entries[last:])
		case <-over:
			t.Error("the reader did not read")
		}
	}()
	read := mint(t, token.Grant{Stream: thread.StreamName("demo"), Scope: []string{token.ScopeRead}})
	out := node(t, map[string]string{"read.ts": string(program)}, []string{"read.ts"},
		[]string{"SERVER=" + url, "THREAD=demo", "TOKEN=" + read})
	close(over)
	<-done
	want := `you: Write made.txt and show it.
agent: [{"type":"text","text":"I will call a tool."},{"type":"toolCall","id":"call_0_0","name":"bash",` +
		`"arguments":{"command":"sleep 6; echo by-the-agent > made.txt; cat made.txt"}}]
agent: [{"type":"text","text":"Made."}]
status: completed
`
	if string(out) != want {
		t.Errorf("got %s\nwant %s", out, want)
	}
}

// signalled closes reading when the first request for a stream of the protocol has come.
func signalled(reading chan struct{}) func(http.Handler) http.Handler {
	var once sync.Once
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/stream/") {
				once.Do(func() { close(reading) })
			}
			next.ServeHTTP(w, r)
		})
	}
}

// httpBlock is a request and its answer on a page.
var httpBlock = regexp.MustCompile(
	"(?s)```http\n([A-Z]+) (\\S+)\n(.*?)\n\n(?:(\\{.*?|\\[.*?)\n\n)?([0-9]{3})\n(.*?)\n(?:\n(.*?)\n)?```",
)

// The requests in docs/PROTOCOL.md get the answers that stand behind them.
func TestPageRequests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := httpBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 5 || len(blocks) != strings.Count(string(page), "```http\n") {
		t.Fatalf("%d blocks with a request and an answer", len(blocks))
	}
	s := newServer(t)
	for _, b := range blocks {
		method, path, body, status, headers, want := b[1], b[2], b[4], b[5], b[6], b[7]
		if !strings.Contains(b[3], "Authorization: Bearer <token>") {
			t.Errorf("%s %s has no token", method, path)
		}
		a := s.do(method, path, writer(t, "demo"), body)
		if strconv.Itoa(a.status) != status {
			t.Errorf("%s %s: %d %s, want %s", method, path, a.status, a.body, status)
		}
		for line := range strings.SplitSeq(headers, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			if a.header.Get(name) != value {
				t.Errorf("%s %s: %s is %q, want %q", method, path, name, a.header.Get(name), value)
			}
		}
		if diff := cmp.Diff(decoded(t, want), decoded(t, a.body)); diff != "" {
			t.Errorf("%s %s: the page (-), the answer (+):\n%s", method, path, diff)
		}
	}
}

// decoded returns the values of a text of JSON, times of the server as a page writes them.
func decoded(t *testing.T, lines string) (all []any) {
	t.Helper()
	lines = regexp.MustCompile(`"(at|startedAt|lastEntryAt)":"[^"]*"`).ReplaceAllString(lines, `"$1":"<now>"`)
	for dec := json.NewDecoder(strings.NewReader(lines)); dec.More(); {
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, lines)
		}
		all = append(all, v)
	}
	return all
}
