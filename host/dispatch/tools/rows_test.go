package tools_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/dispatch/tools"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

// Threads of the thread's house are listed, and of no other one, even where the bot is a member there.
func TestListThreads(t *testing.T) {
	w := newWorld(t)
	w.want("list_threads", w.call(args{}), false,
		"planning \"Planning\" idle, this thread\nlogs \"Logs\" idle\nshut \"Shut\" closed\n")
	w.want("list_threads", w.call(args{"query": "LOG"}), false, "logs \"Logs\" idle\n")
	w.want("list_threads", w.call(args{"query": "Safe"}), false, "No thread of the house is like that.")
}

// A page of a thread is read as models are shown it, and back from there.
func TestReadThread(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.say("logs", fmt.Sprint("m", i), ann, fmt.Sprintf("line %d\n[answer this]", i))
	}
	want := "Thread logs \"Logs\"\n#4 [chat from Ann (human) 00:00 id m3]\nline 3\n\\[answer this]\n" +
		"#5 [chat from Ann (human) 00:00 id m4]\nline 4\n\\[answer this]\n(of 5 entries; before: \"4\" for older ones)"
	if r := w.run("read_thread", w.call(args{"thread": "logs", "limit": 2})); r.IsError || r.Text != want {
		t.Errorf("got\n%s\nwant\n%s", r.Text, want)
	}
	w.want("read_thread", w.call(args{"thread": "logs", "before": "2"}), false, "\n#1 [chat from Ann")
	w.want("read_thread", w.call(args{"thread": "logs", "find": "LINE 2"}), false, "\"Logs\"\n#3 [chat from Ann")
	w.want("read_thread", w.call(args{"thread": "logs", "before": "m3"}), true, "want the number of an entry")
	w.want("read_thread", w.call(args{}), false, "Thread planning \"Planning\"\n(none of its 0 entries)")
	for _, id := range []string{"safe", "far", "none"} {
		w.want("read_thread", w.call(args{"thread": id}), true, "there is no thread "+id+" in this house")
	}
	for i := range 40 {
		w.say("logs", fmt.Sprint("long", i), ann, strings.Repeat("é", 1000*i))
	}
	r := w.run("read_thread", w.call(args{"thread": "logs"}))
	if len(r.Text) > 16<<10 || !strings.Contains(r.Text, "#45 ") || !strings.Contains(r.Text, "are left out") {
		t.Errorf("%d bytes: %.200s", len(r.Text), r.Text)
	}
}

// A chat on another thread continues the chain, and is posted once.
func TestPostToThread(t *testing.T) {
	w := newWorld(t)
	c := w.call(args{"thread": "logs", "text": "@alma look"})
	c.Depth = 2
	for range 2 {
		w.want("post_to_thread", c, false, `Posted on the thread logs "Logs".`)
	}
	if n := len(w.logs["logs"]); n != 1 {
		t.Fatalf("%d entries", n)
	}
	e := w.logs["logs"][0]
	want := thread.Chat{Type: thread.TypeChat, Text: "@alma look", Via: &thread.Via{
		ThreadID: "planning", Reaction: c.Reaction, Depth: 3, Root: c.Root,
	}}
	if d := cmp.Diff(want, payload(t, e)); d != "" || e.ID != key || e.AuthorID != piet {
		t.Errorf("%+v\n%s", e, d)
	}
	c.Arguments = thread.Marshal(args{"thread": "logs", "text": "other words"}) // as of a redactor with more secrets
	w.want("post_to_thread", c, false, "Posted")
	for id, why := range map[string]string{
		"safe": "there is no thread safe", "far": "there is no thread far", "shut": "closed", "planning": "your reply",
	} {
		w.want("post_to_thread", w.call(args{"thread": id, "text": "hi"}), true, why)
	}
	c = w.call(args{"thread": "logs", "text": "on and on"})
	c.Key, c.Depth = "x_other-0-0", 7
	w.want("post_to_thread", c, true, "as long as it may be")
	w.closed["logs"] = true
	w.want("post_to_thread", w.call(args{"thread": "logs", "text": "hi"}), true, "is deleted")
	if n := len(w.logs["logs"]); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// A thread is made once, with its first chat in the chain, and with bots that answer each chat there.
func TestCreateThread(t *testing.T) {
	w := newWorld(t)
	c := w.call(args{"name": "New", "text": "Hello.", "with": []string{"@alma", piet}})
	for range 2 {
		w.want("create_thread", c, false, `Made the thread `+key+` "New", and posted its first message.`)
	}
	made := w.threads[len(w.threads)-1]
	if len(w.threads) != 6 || made.ID != key || made.House != "lab" || made.Name != "New" {
		t.Errorf("%+v", made)
	}
	const config = `{"dispatch":{"perAgent":{"` + piet + `":{"triggerMode":"always"},"` + alma + `":{"triggerMode":"always"}}}}`
	if string(made.Config) != config {
		t.Errorf("%s", made.Config)
	}
	if log := w.logs[key]; len(log) != 1 || log[0].ID != key || payload(t, log[0]).Via.Depth != 1 {
		t.Errorf("%+v", log)
	}
	c = w.call(args{"name": "New", "text": "Hello."})
	c.Key, c.Depth = "x_other-0-0", 7
	w.want("create_thread", c, true, "as long as it may be")
	c.Arguments = thread.Marshal(args{"name": "New", "with": []string{"Gus"}})
	w.want("create_thread", c, true, "the house has no bot Gus. It has: Alma, Piet")
	if len(w.threads) != 6 {
		t.Errorf("%d threads", len(w.threads))
	}
	c.Arguments = thread.Marshal(args{"name": "Quiet"})
	w.want("create_thread", c, false, "Made the thread x_other-0-0")
}

// A bot that a bot makes has no tool that its maker has not.
func TestCreateAgent(t *testing.T) {
	w := newWorld(t)
	const name = "create_agent"
	for range 2 {
		w.want(name, w.call(args{"name": "Gus", "instructions": "Be brief."}), false, "Made the bot Gus, id ")
	}
	if len(w.bots) != 1 {
		t.Fatalf("%+v", w.bots)
	}
	b := w.bots[0]
	if b.House != "lab" || b.Config != (rows.BotConfig{Model: "p/m", Instructions: "Be brief."}) || len(b.ID) != 36 {
		t.Errorf("%+v", b)
	}
	if on := b.Tools; !on["post_to_thread"] || on["hello_world"] || on[name] {
		t.Errorf("%+v", on)
	}
	c := w.call(args{"name": "Tina", "instructions": "", "model": "q/n", "tools": []string{"read_thread"}})
	c.Key = "x_other-0-0"
	w.want(name, c, false, "Made the bot Tina")
	b = w.bots[1]
	if _, set := b.Tools["read_thread"]; set || b.Tools["post_to_thread"] || b.Config.Model != "q/n" {
		t.Errorf("%+v", b)
	}
	for _, tool := range []string{name, "hello_world", "sudo"} {
		w.want(name, w.call(args{"name": "X", "instructions": "", "tools": []string{tool}}), true, tool)
	}
	w.want(name, w.call(args{"name": "X", "instructions": strings.Repeat("é", 5000)}), true, "at most 8192 bytes")
	w.want(name, w.call(args{"name": "X\nY", "instructions": ""}), true, "refused")
	if len(w.bots) != 2 {
		t.Errorf("%+v", w.bots)
	}
}

// The address of a gif is the first line that the operator's service answers.
func TestSendGif(t *testing.T) {
	w := newWorld(t)
	w.want("send_gif", w.call(args{"query": "cats"}), true, "no gif service is configured")
	body, status, asked := "", http.StatusOK, ""
	service := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		rw.Header().Set("Location", "/elsewhere")
		rw.WriteHeader(status)
		_, _ = rw.Write([]byte(body)) // or the client has left
	}))
	defer service.Close()
	w.tools.Gifs = &tools.Gifs{URL: service.URL + "/find/{query}?key=k3y&q={query}", HTTP: service.Client()}
	for _, tt := range []struct {
		body   string
		status int
		fails  bool
		want   string
	}{
		{"https://gifs.example.com/1.gif\nmore", 200, false, "https://gifs.example.com/1.gif"},
		{"https://gifs.example.com/1.gif", 200, false, "https://gifs.example.com/1.gif"},
		{"none", 200, true, "has no address"},
		{"javascript:alert(1)\n", 200, true, "has no address"},
		{strings.Repeat("x", 2<<20), 200, true, "has no address"},
		{"", 302, true, "answers 302"},
		{"", 500, true, "answers 500"},
	} {
		body, status = tt.body, tt.status
		r := w.run("send_gif", w.call(args{"query": "a & b/c=d"}))
		if r.IsError != tt.fails || !strings.Contains(r.Text, tt.want) || strings.Contains(r.Text, "k3y") {
			t.Errorf("%.50s: %+v", tt.body, r)
		}
		if asked != "/find/a%20%26%20b%2Fc%3Dd?key=k3y&q=a%20%26%20b%2Fc%3Dd" {
			t.Error(asked)
		}
	}
	service.Close()
	w.want("send_gif", w.call(args{"query": "cats"}), true, "does not answer")
}

// Which tools a bot has without a setting of its house, and which run for humans alone.
func TestRights(t *testing.T) {
	w := newWorld(t)
	got := map[string]string{}
	for _, x := range w.tools.All() {
		got[x.Name] = fmt.Sprint(x.Asked, x.Acts, x.Most)
	}
	for name, want := range map[string]string{
		"list_threads": "false false 0", "read_thread": "false false 0", "create_thread": "false true 2",
		"post_to_thread": "true true 3", "create_agent": "true true 0", "send_gif": "true false 0",
	} {
		if got[name] != want {
			t.Errorf("%s: asked, acts, most are %s, want %s", name, got[name], want)
		}
	}
	w.tools = tools.Host{}
	w.want("list_threads", w.call(args{}), true, "this host has no rows of threads")
}
