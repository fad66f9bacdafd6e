package bots_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/scene"
	"arbe.0sk.ar/runner/thread"
)

// A bot lists and reads threads of its house, makes one, posts on another one, and makes a bot, which answers there.
// The chats have where they come from.
func TestFullTools(t *testing.T) {
	t.Parallel()
	gifs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "https://gifs.example.com/1.gif")
	}))
	t.Cleanup(gifs.Close)
	type args = map[string]any
	h := newHouse(t,
		model.Reply{Tools: []model.Tool{
			{Name: "create_agent", Arguments: args{"name": "Alma", "instructions": "Say so."}},
			{Name: "list_threads", Arguments: args{}},
			{Name: "read_thread", Arguments: args{"thread": "logs"}},
			{Name: "send_gif", Arguments: args{"query": "cats"}},
			{Name: "create_thread", Arguments: args{"name": "Release", "text": "We begin."}},
			{Name: "post_to_thread", Arguments: args{"thread": "logs", "text": "@Alma is the disk full?"}},
		}},
		model.Reply{Text: "so it is", Times: -1})
	h.arbe("", "house", "set", "h1", "--create-agents", "on")
	h.arbe("", "member", "set", "--house", "h1", piet, "--tool", "create_agent", "--tool", "post_to_thread")
	h.serve(h.dispatching("--dispatch", "--gif-url", gifs.URL+"/{query}")...)
	id := h.thread()
	h.sql(`insert into threads (id, stream_id, house_id, name) values ('logs', 'logs', 'h1', 'Logs')`)
	h.arbe("", "thread", "post", "--author", ann, "logs", "The disk has 3 GB.")
	h.say(id, "@piet look after it")
	scene.Until(t, "two answers", func() bool { return len(h.ends(id)) > 0 && len(h.ends("logs")) > 0 })

	results := ""
	for _, e := range h.entries(id) {
		if p := scene.Payload[thread.CallResult](t, e); p.Type == thread.TypeResult {
			results += string(p.Message) + "\n"
		}
	}
	reaction := thread.ReactionID(id, piet, 0)
	for _, want := range []string{
		"Made the bot Alma", `logs \"Logs\" idle, last entry 20`, "#1 [chat from ann (human)", "The disk has 3 GB.",
		"https://gifs.example.com/1.gif", "Made the thread " + reaction + "-0-4", "Posted on the thread logs",
	} {
		if !strings.Contains(results, want) {
			t.Errorf("the results lack %q:\n%s", want, results)
		}
	}
	if made := h.entries(reaction + "-0-4"); len(made) == 0 || !strings.Contains(string(made[0].Payload), "We begin.") {
		t.Errorf("the new thread has %v", made)
	}
	if log := scene.TextOf(h.entries("logs")); !strings.Contains(log, `"via":{"depth":1,"reaction":"`+reaction+`"`) ||
		!strings.Contains(log, "so it is") {
		t.Errorf("logs has\n%s", log)
	}
	if n := h.count("agents where made_by = '" + piet + "' and owner_house_id = 'h1'"); n != 1 {
		t.Errorf("%d bots are made", n)
	}
}
