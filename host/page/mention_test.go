package page

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/test/hostile"
	"arbe.0sk.ar/runner/internal/test/reaction"
	"arbe.0sk.ar/runner/thread"
)

const (
	piet = "11111111-0000-4000-8000-000000000001"
	gus  = "33333333-0000-4000-8000-000000000003"
	tina = "44444444-0000-4000-8000-000000000004"
	ann  = "99999999-0000-4000-8000-000000000009"
)

// roomOf is the house of the thread t1 with three bots that answer, of which two have one name, and a human.
func roomOf(_ context.Context, id string) (r rows.Room, err error) {
	if id != "t1" {
		return r, rows.ErrAbsent
	}
	r.Since = time.Unix(1, 0)
	r.Humans = []rows.Agent{{ID: ann, Name: "Ann"}}
	for _, b := range [][2]string{{piet, "Piet Two"}, {gus, "Gus"}, {tina, "gus"}} {
		r.Bots = append(r.Bots, rows.RoomBot{
			Agent: rows.Agent{ID: b[0], Name: b[1]}, Config: rows.BotConfig{Model: "anthropic/scripted-1"},
		})
	}
	return r, nil
}

// as makes a browser's request and returns its answer.
func (h *house) as(method, path, body string) (status int, answer string) {
	h.t.Helper()
	r := httptest.NewRequestWithContext(h.t.Context(), method, path, strings.NewReader(body))
	r.AddCookie(h.cookie())
	r.Host = "localhost"
	w := httptest.NewRecorder()
	h.handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// A chat has the ids of the bots that it names, and the answer has a note where a name is that of two. Without rows the
// chat is posted, too.
func TestMention(t *testing.T) {
	h := newHouse(t)
	h.append("t1", "first")
	h.append("t2", "first")
	h.Room = roomOf
	h.Mentions = func(text string, of rows.Room) (ids, shared []string) {
		if strings.Contains(text, "@Piet") {
			ids = []string{of.Bots[0].ID}
		}
		if strings.Contains(text, "@gus") {
			shared = []string{"gus"}
		}
		return ids, shared
	}
	if _, got := h.as("GET", "/t/t1", ""); !strings.Contains(got,
		"A bot answers who names it: @&#34;Piet Two&#34;, @33333333 (Gus), @44444444 (gus)") {
		t.Errorf("no bot is offered: %s", got)
	}
	if _, got := h.as("GET", "/t/t2", ""); strings.Contains(got, "to-bots") {
		t.Error("a thread without a house has bots")
	}
	for _, tt := range []struct{ thread, text, note, mentions string }{
		{"t1", "hello", "", ""},
		{"t1", "@Piet", "", `,"mentions":["` + piet + `"]`},
		{
			"t1", "@Piet @gus", "Posted, but 2 bots are called gus, and none of them was asked: " +
				"name one as @33333333 or @44444444.", `,"mentions":["` + piet + `"]`,
		},
		{"t2", "@Piet", "", ""},
	} {
		status, got := h.as("POST", "/t/"+tt.thread+"/chat", `{"text":"`+tt.text+`"}`)
		if status != http.StatusCreated || strings.Contains(got, `"note"`) != (tt.note != "") ||
			!strings.Contains(got, tt.note) {
			t.Errorf("%q: %d %s", tt.text, status, got)
		}
		_, id, _ := strings.Cut(got, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		want := `"payload":{"type":"chat","text":"` + tt.text + `"` + tt.mentions + `}`
		if _, raw := h.as("GET", "/t/"+tt.thread+"/raw/"+id, ""); !strings.Contains(raw, want) {
			t.Errorf("%q: want %s in %s", tt.text, want, raw)
		}
	}
	h.who.rooms = nil
	h.Room = func(context.Context, string) (rows.Room, error) { return rows.Room{}, errors.New("no rows today") }
	if status, got := h.as("POST", "/t/t1/chat", `{"text":"@Piet"}`); status != http.StatusCreated {
		t.Errorf("without rows: %d %s", status, got)
	}
	if status, _ := h.as("GET", "/t/t1", ""); status != http.StatusOK {
		t.Errorf("without rows the page is %d", status)
	}
}

// Authors, bots and who answers have the names of the house, on the page, live and in the list.
func TestNames(t *testing.T) {
	h := newHouse(t)
	h.Room = roomOf
	r := &reaction.Reaction{Thread: "t1", Bot: piet, Chats: []string{"c"}, At: at}
	gone := &reaction.Reaction{Thread: "t1", Bot: "55555555-0000-4000-8000-000000000005", Chats: []string{"c"}, At: at}
	chat := thread.Entry{
		ID: "c", TS: thread.Stamp(at), AuthorID: ann, Payload: []byte(`{"type":"chat","text":"@Piet and who?"}`),
	}
	post := func(entries ...thread.Entry) uint64 {
		t.Helper()
		done, err := h.Log.Append(t.Context(), "t1", entries)
		if err != nil {
			t.Fatal(err)
		}
		return done.Next
	}
	after := post(chat, gone.Claim(0), gone.End(thread.ReactionFailed, "crashed", ""), r.Claim(0),
		r.Delta(0, 0, 0, 0, "I look"))
	_, page := h.as("GET", "/t/t1", "")
	for _, want := range []string{
		"<h2>Ann</h2>", "bot 55555555 did not answer", `<h2>Piet Two <span class="bot">bot</span></h2>`, "I look",
		`<span class="bots">Piet Two answering</span>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q: %s", want, page)
		}
	}
	if _, list := h.as("GET", "/", ""); !strings.Contains(list, `<span class="bots">Piet Two answering</span>`) {
		t.Errorf("the list lacks who answers: %s", list)
	}
	b := h.open("t1", after)
	if !b.await("I look") || !b.await(`"answering":["`+r.ID()+`"]`) {
		t.Fatal("a browser that has just come lacks the answer")
	}
	post(r.Delta(0, 0, 1, 6, " around"))
	if !b.await("I look around") {
		t.Fatal("the answer does not grow")
	}
	post(r.Reply(0, "It is me.")...)
	if !b.await("It is me.") {
		t.Fatal("no reply")
	}
	b.end()
	h.checkEmpty()
}

// What a bot writes and calls, and its name, are text while it answers, too.
func TestHostileAnswer(t *testing.T) {
	for n, text := range hostile.Texts {
		r := &reaction.Reaction{Thread: "t1", Bot: hostile.Author(text), At: at}
		p := pieceOf([]thread.Entry{r.Claim(0), r.Delta(0, 0, 0, 0, text, text, "stderr: "+text+" end")})
		for _, a := range p.Coming {
			shown := checkHTML(t, text, `<article id="i-x">`+execute(t, "answer", a)+"</article>")
			if !strings.Contains(plain(shown), plain("stderr: "+view.Visible(text)+" end")) {
				t.Errorf("text %d, %.60q: not on its page", n, text)
			}
		}
		if len(p.Coming) != 1 {
			t.Fatalf("%d answers", len(p.Coming))
		}
	}
}
