package scripts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/test/generated"
	"arbe.0sk.ar/runner/internal/test/wire"
	"arbe.0sk.ar/runner/thread"
)

var update = flag.Bool("update", false, "write the table of docs/API.md anew")

// TestDoors holds the table of tokens in docs/API.md: it asks a real server, with a real Postgres, for each row
// with each column's token. The server's answers are those of the table, and each route of docs/openapi.yaml is in it.
func TestDoors(t *testing.T) {
	t.Parallel()
	d := startDoors(t)
	want := readTable(t)
	got := [][]string{append([]string{"request"}, columns...)}
	for i, row := range doors {
		cells := []string{row.name}
		for k, column := range columns {
			cells = append(cells, d.try(row, cell{row: i, column: k, who: column}))
		}
		got = append(got, cells)
	}
	if *update {
		writeTable(t, got)
		return
	}
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			t.Errorf("the table lacks %q", got[i][0])
		case i >= len(got):
			t.Errorf("no test has the row %q", want[i][0])
		case !slices.Equal(want[i], got[i]):
			t.Errorf("the table has  %q\nand the server %q", want[i], got[i])
		}
	}
	checkRoutes(t)
	d.checkRenewed()
}

// checkRenewed holds a renewed token against the one that renewed it: it is bound to the same.
func (d *doorServer) checkRenewed() {
	for _, command := range []bool{false, true} {
		g := token.Grant{
			Stream: thread.StreamName("t1"), Scope: []string{token.ScopeRenew}, Run: "r1", Command: command,
			House: "h1", Author: bot, Until: time.Now().Add(time.Hour),
		}
		signed, err := token.Sign(d.secret, g)
		if err != nil {
			d.t.Fatal(err)
		}
		var fresh struct{ JWT string }
		_, _, answer := d.send("POST", "/api/stream/arbe-thread-t1/token", "", signed, nil)
		if err := json.Unmarshal(answer, &fresh); err != nil {
			d.t.Fatalf("%v in %s", err, answer)
		}
		got, err := token.NewVerifier([][]byte{d.secret}).Verify(fresh.JWT)
		if err != nil || got.Stream != g.Stream || got.Run != g.Run || got.Command != g.Command ||
			got.House != g.House || got.Author != g.Author || !slices.Equal(got.Scope, []string{token.ScopeWrite}) {
			d.t.Errorf("%+v was renewed as %+v, %v", g, got, err)
		}
	}
}

// columns are the holders of the table.
var columns = []string{
	"none", "read", "write", "run", "command", "renew", "delete", "list", "owner", "member", "other", "page", "session",
	"share", "login", "other login",
}

// cell is one of the table: who asks, in which row. Its entry, and the thread of a row that deletes one, are its own.
type cell struct {
	row, column int
	who         string
}

// thread is the thread that the cell's request is for; t1 for most.
func (c cell) thread(of string, own bool) string {
	if own {
		return fmt.Sprintf("own%d-%d", c.row, c.column)
	}
	return cmp.Or(of, "t1")
}

// run returns the id that the cell's token is for: the run r1, or the command c1.
func (c cell) run() string {
	if c.who == "command" {
		return "c1"
	}
	return "r1"
}

func (c cell) entry() string { return fmt.Sprintf("e%d.%d", c.row, c.column) }

// door is a row of the table.
type door struct {
	name   string // as the table has it: METHOD /path, and what is special about it
	target string // "" for the path in name
	body   func(c cell) string
	pass   int                 // the status for who may
	of     string              // the thread of the request and the token; "" for t1
	own    bool                // the request is for a thread of its own
	before func(s *doorServer) // what each of its requests needs
}

// Parts of entries.
const (
	aChat = `"payload":{"type":"chat","text":"hi"}`
	aLine = `"payload":{"type":"pi.session","session":{"id":"s","index":1}}`
)

// posted returns an entry. {e}, {run} and {n} stand for the cell's entry, its run and a number.
func posted(id, members string) func(cell) string {
	return func(c cell) string {
		names := strings.NewReplacer("{e}", c.entry(), "{run}", c.run(), "{n}", fmt.Sprint(100*c.row+c.column))
		return names.Replace(`{"id":"` + id + `","ts":"2026-01-01T00:00:00.000Z",` + members + `}`)
	}
}

func fixed(body string) func(cell) string { return func(cell) string { return body } }

func runSignal(typ, run, more string) string {
	return `"payload":{"type":"` + typ + `","runId":"` + run + `","harness":"pi"` + more + `}`
}

const (
	api    = "POST `/api/stream/T`: "
	stream = "/api/stream/arbe-thread-{T}"
	ds     = "/v1/stream/arbe-thread-{T}"
)

// doors are the table's rows, in its order. T is a thread of the house of owner and member, with the run r1.
var doors = []door{
	{name: "GET `/api/stream/T`", target: stream, pass: 200},
	{name: "GET `/api/stream/T/entries/E`", target: stream + "/entries/r1.running", pass: 200},
	{name: "PUT `/api/stream/T`", target: stream, pass: 200},
	{name: api + "a chat", target: stream, body: posted("{e}", aChat), pass: 200},
	{name: api + "a line of a session", target: stream, body: posted("pi:s:{e}", aLine), pass: 200},
	{name: api + "the prompt of its run", target: stream, body: posted("{run}.prompt", `"payload":{"type":"chat","text":"do it","runId":"{run}"}`), pass: 200},
	{name: api + "a heartbeat of its run", target: stream, body: posted("{run}.beat.{n}", runSignal("signal.dispatch.heartbeat", "{run}", `,"beat":1`)), pass: 200},
	{name: api + "the end of its run", target: stream, body: posted("{run}.end.{n}", runSignal("signal.thread.status_changed", "{run}", `,"status":"completed"`)), pass: 200},
	{name: api + "output of its command", target: stream, body: posted("{run}.exec.{n}", `"payload":{"type":"signal.exec.output","execId":"{run}","stream":"stdout","text":"x"}`), pass: 200},
	{name: api + "a line whose `authorId` is a member", target: stream, body: posted("pi:s:{e}", `"authorId":"`+ann+`",`+aLine), pass: 200},
	{name: api + "a chat whose `authorId` is a member", target: stream, body: posted("{e}", `"authorId":"`+ann+`",`+aChat), pass: 200},
	{name: api + "a signal of another run", target: stream, body: posted("r9.beat.{n}", runSignal("signal.dispatch.heartbeat", "r9", `,"beat":1`)), pass: 200},
	{name: api + "another run's id", target: stream, body: posted("r9.end.{n}", aLine), pass: 200},
	{name: api + "a claim of the next run", target: stream, body: posted("run.{n}", aLine), pass: 200},
	{name: api + "its run's `sandbox`", target: stream, body: posted("{run}.sandbox.{n}", runSignal("signal.dispatch.sandbox", "{run}", `,"sandbox":{"provider":"local","ref":"b"}`)), pass: 200},
	{name: api + "its run's `sandbox`, under its id", target: stream, body: posted("{run}.sandbox", runSignal("signal.dispatch.sandbox", "{run}", `,"sandbox":{"provider":"local","ref":"b"}`)), pass: 200},
	{name: api + "a push of its run", target: stream, body: posted("{run}.push.{n}", runSignal("signal.dispatch.push", "{run}", `,"pushed":true`)), pass: 200},
	{name: api + "a `parent` of its run", target: stream, body: posted("{e}", runSignal("signal.thread.status_changed", "{run}", `,"status":"running","parent":{"threadId":"t2","authorId":"`+ann+`"}`)), pass: 200},
	{name: api + "a child's result", target: stream, body: posted("child{n}.r.result", aLine), pass: 200},
	{name: api + "an id `member.…`", target: stream, body: posted("member."+ann+".{e}", aLine), pass: 200},
	{name: api + "an id `d_…`", target: stream, body: posted("d_{e}.decided", aLine), pass: 200},
	{name: api + "an id `x_…`", target: stream, body: posted("x_{e}.claim.0", aLine), pass: 200},
	{name: api + "a payload with `reaction`", target: stream, body: posted("pi:s:{e}", `"payload":{"type":"pi.assistant","reaction":{"id":"x_a"}}`), pass: 200},
	{name: api + "a payload with `via`", target: stream, body: posted("pi:s:{e}", `"payload":{"type":"chat","text":"x","session":{"id":"s"},"via":{"depth":1}}`), pass: 200},
	{name: api + "a payload with `quiet`", target: stream, body: posted("pi:s:{e}", `"payload":{"type":"chat","text":"x","session":{"id":"s"},"quiet":true}`), pass: 200},
	{name: api + "a command", target: stream, body: posted("q{n}.exec.0", `"payload":{"type":"signal.exec.started","execId":"q{n}","command":"x","timeoutMs":1000}`), pass: 200},
	{name: api + "output of another command", target: stream, body: posted("q.exec.{n}", `"payload":{"type":"signal.exec.output","execId":"q","stream":"stdout","text":"x"}`), pass: 200},
	{name: "POST `/api/stream/T/token`", target: stream + "/token", pass: 200},
	{name: "GET `/api/stream/…` of another thread", target: "/api/stream/arbe-thread-t2", pass: 200},
	{name: "POST `/api/stream/…` of another thread", target: "/api/stream/arbe-thread-t2", body: posted("pi:s:{e}", aLine), pass: 200},
	{name: "GET `/api/stream/…` of a thread that is the token's, of another house", target: stream, of: "t2", pass: 200},
	{name: "POST `/api/stream/…/token` of such a thread", target: stream + "/token", of: "t2", pass: 200},
	{name: "GET `/v1/stream/T`", target: ds, pass: 200},
	{name: "HEAD `/v1/stream/T`", target: ds, pass: 200},
	{name: "PUT `/v1/stream/T`", target: ds, pass: 200},
	{name: "POST `/v1/stream/T`: a line of a session", target: ds, body: posted("pi:s:{e}", aLine), pass: 204},
	{name: "POST `/v1/stream/T`: a chat whose `authorId` is a member", target: ds, body: posted("{e}", `"authorId":"`+ann+`",`+aChat), pass: 204},
	{name: "DELETE `/v1/stream/T`", target: ds, pass: 204, own: true},
	{name: "PUT `/v1/stream/…`, no thread", target: "/v1/stream/notes", pass: 201},
	{name: "GET `/api/threads`", pass: 200},
	{name: "GET `/api/threads/T`", target: "/api/threads/{T}", pass: 200},
	{name: "POST `/api/threads`", body: fixed(`{"house":"h1"}`), pass: 201},
	{name: "PATCH `/api/threads/T`", target: "/api/threads/{T}", body: fixed(`{"name":"x"}`), pass: 200},
	{name: "DELETE `/api/threads/T`", target: "/api/threads/{T}", pass: 204, own: true},
	{name: "GET `/api/threads/T/entries`", target: "/api/threads/{T}/entries", pass: 200},
	{name: "POST `/api/threads/T/entries`", target: "/api/threads/{T}/entries", body: fixed(`{` + aChat + `}`), pass: 201},
	{name: "POST `/api/threads/T/entries`: with the `authorId` of another", target: "/api/threads/{T}/entries", body: fixed(`{"authorId":"` + bob + `",` + aChat + `}`), pass: 201},
	{name: "POST `/api/threads/T/entries`: a signal", target: "/api/threads/{T}/entries", body: fixed(`{` + runSignal("signal.dispatch.heartbeat", "r1", "") + `}`), pass: 201},
	{name: "POST `/api/threads/T/tasks`", target: "/api/threads/{T}/tasks", body: fixed(`{"task":"do it"}`), pass: 201},
	{name: "POST `/api/threads/T/commands`", target: "/api/threads/{T}/commands", body: fixed(`{"command":"ls"}`), pass: 501}, // no provider
	{name: "POST `/api/threads/T/commands/E/cancel`", target: "/api/threads/{T}/commands/c9/cancel", pass: 202},
	{name: "POST `/api/threads/T/reconcile`", target: "/api/threads/{T}/reconcile", pass: 200},
	{name: "GET `/api/environments`", target: "/api/environments?house=h1", pass: 200},
	{name: "POST `/api/environments`", body: fixed(`{"house":"h1","name":"x"}`), pass: 201},
	{name: "GET `/api/environments/E`", target: "/api/environments/e1", pass: 200},
	{name: "PUT `/api/environments/E`", target: "/api/environments/e1", body: fixed(`{"name":"base"}`), pass: 200},
	{name: "PATCH `/api/environments/E`", target: "/api/environments/e1", body: fixed(`{"archived":false}`), pass: 200},
	{name: "DELETE `/api/environments/E`", target: "/api/environments/e1", pass: 200}, // archives it
	{name: "GET `/api/secrets`", target: "/api/secrets?house=h1", pass: 200},
	{name: "PUT `/api/secrets/N`", target: "/api/secrets/KEY?house=h1", body: fixed(`{"value":"hunter2-hunter2"}`), pass: 200},
	{name: "DELETE `/api/secrets/N`", target: "/api/secrets/KEY?house=h1", pass: 204, before: func(s *doorServer) {
		s.want(200, "", "ann", "PUT", "/api/secrets/KEY?house=h1", `{"value":"hunter2-hunter2"}`)
	}},
	{name: "GET `/v1/admin/backup`", target: "/v1/admin/backup", pass: 200},
	{name: "GET `/healthz`", pass: 200},
	{name: "GET `/readyz`", pass: 200},
	{name: "GET `/metrics`", pass: 200},
	{name: "GET `/`, the page", target: "/", pass: 200},
	{name: "GET `/t/T`, the page", target: "/t/{T}", pass: 200},
	{name: "GET `/t/…`, the page of another thread", target: "/t/t2", pass: 200},
	{name: "GET `/t/T/raw/E`", target: "/t/{T}/raw/r1.running", pass: 200},
	{name: "GET `/live`, the page's list", target: "/live?on=list", pass: 200},
	{name: "GET `/t/T/live`", target: "/t/{T}/live?after=0", pass: 200},
	{name: "GET `/t/T/older`", target: "/t/{T}/older", pass: 400}, // it names no place
	{name: "GET `/t/T/newer`", target: "/t/{T}/newer", pass: 400}, // it names no place
	{name: "GET `/t/T/find`", target: "/t/{T}/find", pass: 400},   // it looks for nothing
	{name: "GET `/t/T/image/E/N`", target: "/t/{T}/image/picture/0", pass: 200},
	{name: "GET `/t/T/session`", target: "/t/{T}/session", pass: 200},
	{name: "POST `/t/T/chat`", target: "/t/{T}/chat", body: fixed(`{"text":"hi"}`), pass: 201},
	{name: "POST `/t/T/stop`", target: "/t/{T}/stop", body: fixed(`{"reaction":"x"}`), pass: 409}, // none is open
	{name: "POST `/t/T/cancel`", target: "/t/{T}/cancel", body: fixed(`{}`), pass: 201},
	{name: "POST `/t/T/share`", target: "/t/{T}/share", body: fixed(`{"hours":"1"}`), pass: 201},
	{name: "POST `/login/codes`", body: fixed(`{"thread":"t1"}`), pass: 201},
	{name: "GET `/share/codes`", target: "/share/codes?thread=t1", pass: 200},
	{name: "POST `/share/codes`", body: fixed(`{"thread":"t1"}`), pass: 201},
	{name: "DELETE `/share/codes`", target: "/share/codes?thread=t2", pass: 200},
	{name: "GET `/login`", pass: 200},
	{name: "GET `/share`", pass: 200},
	{name: "POST `/login`: a wrong code", target: "/login", body: fixed(`{"code":"x"}`), pass: 200},
	{name: "POST `/share`: a wrong code", target: "/share", body: fixed(`{"code":"x"}`), pass: 200},
	{name: "GET `/login/state`", pass: 204},
	{name: "GET `/assets/H/N`", target: "{asset}", pass: 200},
	{name: "POST `/t/T/revoke`", target: "/t/{T}/revoke", pass: 200}, // it ends the share
	{name: "POST `/logout`", pass: 303},                              // it ends the logins
}

// doorServer is a server with two houses, and who asks it.
type doorServer struct {
	*houseServer
	secret  []byte
	cookies map[string]*http.Cookie
	asset   string // the path of one
}

func startDoors(t *testing.T) *doorServer {
	t.Helper()
	d := &doorServer{houseServer: startHouses(t), cookies: map[string]*http.Cookie{}}
	d.end()
	keys := filepath.Join(t.TempDir(), "keys")
	d.do("secret", "key", "new", keys)
	d.serve("--secret-keys", keys)
	var data string
	for _, v := range d.env {
		if dir, is := strings.CutPrefix(v, "ARBE_DATA="); is {
			data = dir
		}
	}
	b, err := os.ReadFile(filepath.Join(data, "secret"))
	if err != nil {
		t.Fatal(err)
	}
	d.secret = bytes.TrimSpace(b)
	d.tokens["page"] = strings.TrimSpace(d.do("token", "mint", "--scope", "page"))
	running := posted("r1.running", runSignal("signal.thread.status_changed", "r1", `,"status":"running"`))(cell{})
	command := posted("c9.exec.0", `"payload":{"type":"signal.exec.started","execId":"c9","command":"x","timeoutMs":1000}`)
	picture := posted("picture", `"payload":{"type":"pi.tool_result","toolCallId":"c","toolName":"read","isError":false,`+
		`"message":{"role":"toolResult","content":[{"type":"image","mimeType":"image/png","data":"iVBORw0KGgo="}]},`+
		`"session":{"id":"s","index":9}}`)(cell{})
	for _, id := range []string{"t1", "t2"} {
		d.tokens["host"] = d.sign("write", id)
		d.want(200, "", "host", "POST", "/api/stream/arbe-thread-"+id, "["+running+","+command(cell{})+","+picture+"]")
	}
	cookie := func(who, at, code string) {
		_, header, _ := d.send("POST", at, `{"code":"`+code+`"}`, "", nil)
		made := (&http.Response{Header: header}).Cookies()
		if len(made) != 1 {
			t.Fatalf("%s: %v", at, header)
		}
		d.cookies[who] = made[0]
	}
	_, _, page := d.send("GET", "/login", "", "", nil)
	d.asset = string(regexp.MustCompile(`/assets/[^"]+`).Find(page))
	cookie("login", "/login", d.tokens["cid"])
	cookie("other login", "/login", d.tokens["bob"])
	for who, at := range map[string]string{"session": "/login", "share": "/share"} {
		var link struct{ Code string }
		status, _, answer := d.send("POST", at+"/codes", `{"thread":"t1"}`, d.tokens["page"], nil)
		if err := json.Unmarshal(answer, &link); err != nil || status != http.StatusCreated {
			t.Fatalf("%v, %d %s", err, status, answer)
		}
		cookie(who, at, link.Code)
	}
	return d
}

// sign returns the token that a holder has for a thread; "" for none.
func (d *doorServer) sign(who, id string) string {
	d.t.Helper()
	g := token.Grant{Stream: thread.StreamName(id), Until: time.Now().Add(time.Hour)}
	bind := func() { g.Run, g.House, g.Author = "r1", "h1", bot } // as arbe launch does
	switch who {
	case "read":
		g.Scope = []string{token.ScopeRead}
	case "write":
		g.Scope = []string{token.ScopeWrite}
	case "delete":
		g.Scope = []string{token.ScopeDelete}
	case "run":
		bind()
		g.Scope = []string{token.ScopeWrite}
	case "renew":
		bind()
		g.Scope = []string{token.ScopeRenew}
	case "command":
		bind()
		g.Scope, g.Run, g.Command = []string{token.ScopeWrite}, "c1", true
	case "list", "page":
		return d.tokens[who]
	case "owner", "member", "other":
		return d.tokens[map[string]string{"owner": "ann", "member": "cid", "other": "bob"}[who]]
	default:
		return ""
	}
	signed, err := token.Sign(d.secret, g)
	if err != nil {
		d.t.Fatal(err)
	}
	return signed
}

// try sends the request of a cell, and returns the cell's text for the answer.
func (d *doorServer) try(row door, c cell) string {
	d.t.Helper()
	if row.before != nil {
		row.before(d)
	}
	id := c.thread(row.of, row.own)
	if row.own {
		if err := query(d.db, `insert into threads (id, house_id, stream_id) values ('`+id+`', 'h1', '`+id+`')`); err != nil {
			d.t.Fatal(err)
		}
		d.tokens["host"] = d.sign("write", id)
		d.want(200, "", "host", "POST", "/api/stream/arbe-thread-"+id, posted("e", aChat)(c))
	}
	method, rest, _ := strings.Cut(row.name, " ")
	target, body := row.target, ""
	if target == "" {
		target, _, _ = strings.Cut(strings.TrimPrefix(rest, "`"), "`")
	}
	if row.body != nil {
		body = row.body(c)
	}
	target = strings.NewReplacer("{T}", id, "{asset}", d.asset).Replace(target)
	status, header, answer := d.send(method, target, body, d.sign(c.who, id), d.cookies[c.who])
	if strings.HasPrefix(target, "/api/") {
		if err := wire.CheckExchange(wire.Exchange{
			Method: method, Target: target, Body: body, Status: status, Header: header, Answer: string(answer),
		}); err != nil {
			d.t.Errorf("%s as %s: not as docs/openapi.yaml has it: %v", row.name, c.who, err)
		}
	}
	switch status {
	case row.pass:
		return "✓"
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return strconv.Itoa(status)
	}
	d.t.Errorf("%s as %s: %d %s", row.name, c.who, status, answer)
	return fmt.Sprint("?", status)
}

func (d *doorServer) send(
	method, target, body, signed string, cookie *http.Cookie,
) (status int, header http.Header, answer []byte) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+target, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if signed != "" {
		req.Header.Set("Authorization", "Bearer "+signed)
	}
	if cookie != nil {
		req.AddCookie(cookie)
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // a redirect is an answer
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return resp.StatusCode, resp.Header, nil // it does not end
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b
}

// apiPage is the page that has the table.
const apiPage = "../../../docs/API.md"

// readTable returns the cells of the table, its head first.
func readTable(t *testing.T) (table [][]string) {
	t.Helper()
	b, err := os.ReadFile(apiPage)
	if err != nil {
		t.Fatal(err)
	}
	_, part, _, found := generated.Cut(string(b), "doors")
	if !found {
		t.Fatalf("%s has no table", apiPage)
	}
	for line := range strings.Lines(part) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "| ") {
			table = append(table, strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | "))
		}
	}
	return table
}

// writeTable writes the table into the page.
func writeTable(t *testing.T, table [][]string) {
	t.Helper()
	var b strings.Builder
	for i, cells := range table {
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
		}
	}
	generated.Hold(t, "../../../docs", "doors", b.String(), true)
}

// checkRoutes holds the rows against the operations of docs/openapi.yaml.
func checkRoutes(t *testing.T) {
	t.Helper()
	b, err := os.ReadFile("../../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Paths map[string]map[string]yaml.Node
	}
	if err := yaml.Unmarshal(b, &api); err != nil {
		t.Fatal(err)
	}
	short := strings.NewReplacer("arbe-thread-{thread}", "T", "{thread}", "T", "{entry}", "E", "{exec}", "E",
		"{environment}", "E", "{name}", "N")
	n := 0
	for path, operations := range api.Paths {
		for method := range operations {
			if method == "parameters" {
				continue
			}
			n++
			name := strings.ToUpper(method) + " `" + short.Replace(path) + "`"
			if !slices.ContainsFunc(doors, func(d door) bool { return strings.HasPrefix(d.name, name) }) {
				t.Errorf("the table lacks %s", name)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d operations in docs/openapi.yaml", n)
	}
	b, err = os.ReadFile("../../../host/page/page.go")
	if err != nil {
		t.Fatal(err)
	}
	routes := regexp.MustCompile(`"([A-Z]+) (/\S*)":`).FindAllStringSubmatch(string(b), -1)
	short = strings.NewReplacer("{thread}", "T", "{entry}", "E", "{n}", "N", "{hash}", "H", "{name}", "N", "{$}", "")
	for _, route := range routes {
		name := route[1] + " `" + short.Replace(route[2]) + "`"
		if !slices.ContainsFunc(doors, func(d door) bool { return strings.HasPrefix(d.name, name) }) {
			t.Errorf("the table lacks %s", name)
		}
	}
	if len(routes) < 20 {
		t.Errorf("%d routes in host/page", len(routes))
	}
}
