package page_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// A chat is marked until an agent has it, also where it is in a piece that was loaded before. The form has the words
// for a live run, and for none.
func TestFullPageChats(t *testing.T) {
	h := newHost(t)
	h.post("t1", append(begin("r1", "work", ""),
		signal("r1", "started", thread.TypeStarted, `,"live":true,"cwd":"/w","resume":"none"`))...)
	b := h.login(t, "t1")
	b.Wait("document.querySelector('.to-now').checkVisibility()")
	// What is typed before a post is answered stays.
	b.Run("const real = fetch; window.fetch = (...all) => new Promise((done) => " +
		"{ window.answer = () => { window.fetch = real; done(real(...all)); }; })")
	b.Type("textarea[name=text]", "look at one")
	b.Click(".say button.main")
	b.Wait("window.answer !== undefined")
	b.Type("textarea[name=text]", "look at two")
	b.Run("window.answer()")
	b.Wait(shows("#items .chat", "look at one"))
	b.Wait(shows("#status", "Posted."))
	b.Click(".say button.main")
	b.Wait(shows("#items .chat", "look at two"))
	b.Wait("document.querySelectorAll('#items .undelivered').length === 2")
	b.Wait(shows("#head .unread", "2 not delivered yet"))
	id := func(n int) string {
		var ids []string
		for line := range strings.Lines(h.run("", "thread", "read", "t1")) {
			var e thread.Entry
			if json.Unmarshal([]byte(line), &e) == nil && strings.HasPrefix(e.ID, "page.") {
				ids = append(ids, e.ID)
			}
		}
		return ids[n]
	}
	delivery := func(n int) string {
		return fmt.Sprintf(`{"id":"pi:s:%d","ts":%q,"payload":{"type":"pi.session","kind":"prompt","chat":%q,`+
			`"session":{"id":"s","entry":"%[1]d","parent":null,"index":%[1]d},"line":{}}}`,
			n, thread.Stamp(time.Now()), id(n))
	}
	h.post("t1", delivery(0))
	b.Wait("document.querySelectorAll('#items .undelivered').length === 1")
	b.Wait(shows("#head .unread", "1 not delivered yet"))
	// A further one is delivered when its piece is further back than a live answer looks.
	var lines []string
	for n := range 500 {
		lines = append(lines, fmt.Sprintf(`{"id":"pi:s:x%d","ts":%q,"payload":{"type":"pi.session","kind":"custom",`+
			`"session":{"id":"s","entry":"x%[1]d","parent":null,"index":%[1]d},"line":{}}}`, n+9, thread.Stamp(time.Now())))
	}
	h.post("t1", lines...)
	h.stop()
	h.start()
	h.post("t1", delivery(1))
	b.Wait("document.querySelectorAll('#items .undelivered').length === 0")
	b.Wait("!document.querySelector('#head .unread')")
	h.post("t1", end("r1", "completed"))
	b.Wait("document.querySelector('.to-next').checkVisibility()")
	b.Wait("!document.querySelector('.to-now').checkVisibility()")
}
