package server_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/server/houses"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread"
)

// commands are the commands that a test's server was given, in memory.
type commands struct {
	mu      sync.Mutex
	started []houses.Command
	ended   []string
	fails   error
}

func (x *commands) Start(_ context.Context, c houses.Command) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range x.started {
		if s.Thread == c.Thread && s.ID == c.ID {
			return false, nil
		}
	}
	if x.fails != nil {
		return false, x.fails
	}
	x.started = append(x.started, c)
	return true, nil
}

func (x *commands) Cancel(_ context.Context, threadID, execID, author string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = append(x.ended, threadID+" "+execID+" "+author)
	return x.fails
}

// newCommands starts a server with houses that runs commands. Threads t1 and t3 are of h1, t2 is of h2.
func newCommands(t *testing.T) (*testServer, *commands, *rows) {
	houses, x := newRows(), &commands{}
	s := &testServer{t: t, dir: t.TempDir(), with: func(s *server.Server) { s.Commands = x }, doors: &member.Doors{
		Logins: member.Logins{Secrets: [][]byte{secret}}, Rows: houses,
	}}
	s.open()
	t.Cleanup(s.close)
	return s, x, houses
}

// A command is started for a member and for the holder of a write token, as a script or as words, and once for an id.
func TestCommand(t *testing.T) {
	t.Parallel()
	s, x, _ := newCommands(t)
	by := mint(t, token.Grant{Stream: thread.StreamName("t1"), Scope: []string{token.ScopeWrite}, Author: "me"})
	ask := func(who, body string, status int, answer string) {
		t.Helper()
		a := s.do("POST", "/api/threads/t1/commands", who, body)
		if a.status != status || !strings.Contains(a.body, answer) {
			t.Errorf("%s: got %d %s", body, a.status, a.body)
		}
	}
	her := login(t, ann, time.Hour)
	all := `{"command":"a | b","id":"c1","cwd":"d","environment":"e","timeout":"90s"}`
	ask(her, all, 201, `{"threadId":"t1","execId":"c1"}`)
	ask(her, `{"command":"a | b","id":"c1"}`, 200, `{"threadId":"t1","execId":"c1"}`)
	ask(by, `{"command":["ls","-l"],"id":"c2"}`, 201, `"execId":"c2"`)
	ask(by, `{"command":["ls"]}`, 201, `"execId":"`)
	want := []houses.Command{
		{
			Thread: "t1", ID: "c1", Author: ann, Argv: []string{"sh", "-c", "a | b"}, Shown: "a | b", Cwd: "d",
			Environment: "e", Timeout: 90 * time.Second,
		},
		{Thread: "t1", ID: "c2", Author: "me", Argv: []string{"ls", "-l"}},
	}
	if diff := cmp.Diff(want, x.started[:2]); diff != "" || len(x.started) != 3 || x.started[2].ID == "" {
		t.Error(diff, x.started)
	}
	if a := s.do("POST", "/api/threads/t1/commands/c2/cancel", her, ""); a.status != 202 || len(x.ended) != 1 ||
		x.ended[0] != "t1 c2 "+ann {
		t.Errorf("got %d %s, %q", a.status, a.body, x.ended)
	}
}

// Who may not write a thread, and a run in a box, starts and ends no command.
func TestCommandTokens(t *testing.T) {
	t.Parallel()
	s, x, houses := newCommands(t)
	of := func(g token.Grant) string {
		g.Stream = thread.StreamName("t1")
		return mint(t, g)
	}
	for _, who := range []struct {
		name, token string
		status      int
	}{
		{"a read token", of(token.Grant{Scope: []string{token.ScopeRead}}), 403},
		{"a run's token", of(token.Grant{Scope: []string{token.ScopeWrite}, Run: "r1"}), 403},
		{"a renew token", of(token.Grant{Scope: []string{token.ScopeRenew}, Run: "r1"}), 403},
		{"another house's token", of(token.Grant{Scope: []string{token.ScopeWrite}, House: "h2"}), 403},
		{"another thread's token", writer(t, "t2"), 403},
		{"a member of another house", login(t, bob, time.Hour), 404},
		{"a member of none", login(t, eve, time.Hour), 404},
		{"nobody", "", 401},
	} {
		for _, path := range []string{"/api/threads/t1/commands", "/api/threads/t1/commands/c1/cancel"} {
			if a := s.do("POST", path, who.token, `{"command":"ls"}`); a.status != who.status {
				t.Errorf("%s, %s: %d %s", who.name, path, a.status, a.body)
			}
		}
	}
	houses.change(func() { houses.closed = map[string]bool{"t1": true} })
	if a := s.do("POST", "/api/threads/t1/commands", login(t, ann, time.Hour), `{"command":"ls"}`); a.status != 409 {
		t.Errorf("a closed chat: %d %s", a.status, a.body)
	}
	if len(x.started)+len(x.ended) > 0 {
		t.Errorf("commands %+v, ends %q", x.started, x.ended)
	}
}

// What is no command is refused, and an answer of those who run commands is the caller's.
func TestCommandRefused(t *testing.T) {
	t.Parallel()
	s, x, _ := newCommands(t)
	ask := func(body string) answer { return s.do("POST", "/api/threads/t1/commands", writer(t, "t1"), body) }
	for _, body := range []string{
		`{}`, `{"command":""}`, `{"command":" "}`, `{"command":[]}`, `{"command":7}`, `{"command":[7]}`, `[]`,
		`{"command":"x","more":1}`, `{"command":"x","timeout":"soon"}`, `{"command":"x","timeout":"-1s"}`,
		`{"command":"x","id":"a.b"}`, `{"command":"x"} {}`,
	} {
		if a := ask(body); a.status != 400 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for why, want := range map[houses.CommandFault]string{
		houses.CommandBad: "400 command", houses.CommandLocal: "403 local_boxes", houses.CommandAbsent: "404 not_found",
		houses.CommandTaken: "409 conflict", houses.CommandEnded: "409 ended", houses.CommandNoBox: "409 no_box",
		houses.CommandNoProvider: "501 no_provider", houses.CommandBusy: "503 busy",
	} {
		x.mu.Lock()
		x.fails = houses.RefuseCommand(why, "for a reason")
		x.mu.Unlock()
		a := ask(`{"command":"x"}`)
		status, code, _ := strings.Cut(want, " ")
		if strings.TrimSpace(status) != strconv.Itoa(a.status) || !strings.Contains(a.body, `"code":"`+code+`"`) ||
			!strings.Contains(a.body, "for a reason") {
			t.Errorf("want %s: %d %s", want, a.status, a.body)
		}
	}
	if len(x.started) > 0 {
		t.Errorf("commands %+v", x.started)
	}
}
