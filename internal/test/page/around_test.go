package page_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// chats posts chats c0, c1 … to a thread.
func (h *host) chats(id string, n int) {
	h.t.Helper()
	for from := 0; from < n; from += 100 { // on NATS a piece has whole appends
		var some []string
		for i := from; i < min(n, from+100); i++ {
			some = append(some, chat(fmt.Sprint("c", i), fmt.Sprintf("chat %d end\n\nand a second paragraph", i)))
		}
		h.post(id, some...)
	}
}

// shownIDs returns the ids of the chats of a page, in their order.
func shownIDs(b *browser.Tab) []string {
	return strings.Fields(browser.Eval[string](b,
		"[...document.querySelectorAll('#items .chat')].map(e => e.id.slice(2)).join(' ')"))
}

// A link to an entry opens the page around it, also from a page that does not show it. It reads on both ways, and at
// the end live entries follow.
func TestFullPageAround(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		const n = 1500
		h.chats("long", n)
		b := h.login(t, "long")
		b.Wait(fmt.Sprintf("document.getElementById('i-c%d')", n-1))
		seen := func(id string) string {
			return fmt.Sprintf("document.getElementById('i-%[1]s') && "+
				"Math.abs(document.getElementById('i-%[1]s').getBoundingClientRect().top) < innerHeight", id)
		}
		b.Run("location.hash = '#i-c500'")
		b.Wait("location.search === '?at=c500'")
		b.Wait(seen("c500"))
		b.Wait("document.activeElement.id === 'i-c500'")
		if got := shownIDs(b); len(got) > 600 {
			t.Errorf("%d entries around one", len(got))
		}
		h.post("long", chat("live1", "a live chat"))
		b.Wait("!document.getElementById('new').hidden")
		if browser.Eval[bool](b, "!!document.getElementById('i-live1')") {
			t.Error("a live entry stands behind another one's gap")
		}
		for browser.Eval[bool](b, "!!document.querySelector('.newer')") {
			last := browser.Eval[string](b, "[...document.querySelectorAll('#items .chat')].at(-1).id")
			b.Run("document.getElementById('" + last + "').scrollIntoView()")
			b.Wait("[...document.querySelectorAll('#items .chat')].at(-1).id !== '" + last + "'")
		}
		h.post("long", chat("live2", "another"))
		b.Wait("document.getElementById('i-live2')")
		for browser.Eval[bool](b, "!!document.querySelector('.older')") {
			first := browser.Eval[string](b, "document.querySelector('#items .chat').id")
			b.Run("document.getElementById('" + first + "').scrollIntoView()")
			b.Wait("document.querySelector('#items .chat').id !== '" + first + "'")
		}
		got := shownIDs(b)
		for i, id := range got[:len(got)-2] {
			if id != fmt.Sprint("c", i) {
				t.Fatalf("%s is the entry %d", id, i)
			}
		}
		if len(got) != n+2 || got[n] != "live1" || got[n+1] != "live2" {
			t.Errorf("%d entries, want %d", len(got), n+2)
		}
		b.Go(h.url() + "/t/long#i-c3") // a link that was copied
		b.Wait(seen("c3"))
		b.Go(h.url() + "/t/long?at=c700")
		b.Wait(seen("c700"))
		b.Wait("document.querySelector('#i-c700.linked') && document.activeElement.id === 'i-c700'")
		for _, link := range []string{"?at=none", "#i-none"} { // which shows the end, and the reason
			b.Go(h.url() + "/t/long" + link)
			b.Wait(shows("#status", "The thread has no such entry."))
			b.Wait("document.getElementById('i-live2')")
			b.Wait(atEnd)
		}
	})
}

// A key leads to the search in a thread. Its results are links; a result's opens its call.
func TestFullPageFind(t *testing.T) {
	h := newHost(t)
	h.chats("long", 100)
	line := func(n int, kind, payload string) string {
		return fmt.Sprintf(`{"id":"pi:s:%d","ts":%q,"payload":{"type":%q,"session":{"id":"s","entry":"e%d","index":%d}%s}}`,
			n, thread.Stamp(time.Now()), kind, n, n, payload)
	}
	h.post("long",
		line(1, "pi.assistant", `,"message":{"role":"assistant","content":[{"type":"toolCall","id":"k","name":"bash",`+
			`"arguments":{"command":"ls"}}]}`),
		line(2, "pi.tool_result", `,"toolCallId":"k","toolName":"bash","message":{"role":"toolResult","toolCallId":"k",`+
			`"content":[{"type":"text","text":"a Needle <b>here</b>"}]}`))
	for i := range 3 {
		h.chats(fmt.Sprint("other", i), 1)
	}
	var more []string
	for i := range 900 {
		more = append(more, chat(fmt.Sprint("d", i), "later"))
	}
	h.post("long", more...)
	b := h.login(t, "long")
	b.Wait("document.getElementById('i-d899')")
	b.Run("document.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
	b.Wait("document.activeElement.name === 'q'")
	b.Type("#find input", "needle\r")
	b.Wait(shows("#found mark", "Needle"))
	b.Wait(shows("#found p", "1 item found."))
	b.Click("#found li a")
	b.Wait("location.search.startsWith('?at=')")
	b.Wait(shows("#items .tool details[open] .output, #items details.tool[open] .output", "a Needle <b>here</b>"))
	b.Wait(shows("#found mark", "Needle")) // the list is still there
}

// The items of a subagent are a fold with its task as title, in the page and live.
func TestFullPageSubagent(t *testing.T) {
	h := newHost(t)
	line := func(n int, kind, more string) string {
		return fmt.Sprintf(`{"id":"claude:agent-1:%d","ts":%q,"payload":{"type":%q,"subagentOf":"s",`+
			`"session":{"id":"agent-1","index":%d}%s}}`, n, thread.Stamp(time.Now()), kind, n, more)
	}
	task := line(0, "claude.session", `,"kind":"user","line":{"type":"user","isSidechain":true,`+
		`"message":{"role":"user","content":"Look for <b>files</b>\nin all folders"}}`)
	reply := func(n int) string {
		return line(n, "claude.assistant", fmt.Sprintf(`,"message":{"role":"assistant","content":`+
			`[{"type":"text","text":"reply %d"}]}`, n))
	}
	h.post("t1", chat("first", "use an agent"))
	b := h.login(t, "t1")
	b.Wait(shows("#items .chat", "use an agent"))
	const title = "#items .subagent:not([open]) > summary"
	h.post("t1", task, reply(1))
	b.Wait(shows(title, "subagent: Look for <b>files</b>…"))
	h.chats("t1", 500) // the next reply is in another piece
	h.post("t1", reply(2))
	b.Wait("document.getElementById('i-c499')")
	b.Wait(shows(title, "subagent: Look for <b>files</b>…, continued"))
	b.Go(h.url() + "/t/t1#i-claude:agent-1:1") // a link unfolds it
	b.Wait(shows("#items .subagent[open] .text", "reply 1"))
	b.Wait(shows(title+", #items .subagent[open] > summary", "subagent: Look for <b>files</b>…"))
}

// The tab of a reader who follows the end keeps a bounded number of entries, however many come: twice as many take no
// more nodes and memory. Those that it dropped are loaded again on the way up, where the newest ones are dropped. No
// page is wider than a small phone.
func TestFullPageBounded(t *testing.T) {
	h := newHost(t)
	const n, most = 10_000, 21 * 200
	h.chats("long", 100)
	b := h.login(t, "long")
	b.Size(360, 740, true)
	b.Wait("document.getElementById('i-c99')")
	const count = "document.querySelectorAll('#items .chat').length"
	var nodes int64
	var memory float64
	for from := 0; from < n; from += 500 {
		var some []string
		for i := from; i < from+500; i++ {
			some = append(some, chat(fmt.Sprintf("live%05d", i), "a live chat"))
		}
		h.post("long", some...)
		b.Wait(fmt.Sprintf("document.getElementById('i-live%05d')", from+499))
		if from+500 == n/2 {
			nodes, memory = b.Memory()
		}
	}
	gotNodes, gotMemory := b.Memory()
	if float64(gotNodes) > 1.1*float64(nodes) || gotMemory > 1.5*memory {
		t.Errorf("%d entries: %d nodes, %.0f bytes; %d entries: %d nodes, %.0f bytes",
			n/2, nodes, memory, n, gotNodes, gotMemory)
	}
	if got := browser.Eval[int](b, count); got > most {
		t.Errorf("%d entries are kept", got)
	}
	for browser.Eval[bool](b, "!document.getElementById('i-c0')") {
		first := browser.Eval[string](b, "document.querySelector('#items .chat').id")
		b.Run("document.querySelector('#items .chat').scrollIntoView()")
		b.Wait("document.querySelector('#items .chat').id !== '" + first + "'")
		if got := browser.Eval[int](b, count); got > most+400 {
			t.Fatalf("%d entries on the way up", got)
		}
	}
	b.Wait("document.querySelector('.newer')")
	if w := browser.Eval[int](b, "document.documentElement.scrollWidth"); w > 360 {
		t.Errorf("the page is %d pixels wide", w)
	}
}

// The tab of a reader who has left the end keeps a bounded number of entries, too, and does not move. What has come
// meanwhile is there when the reader goes down to it, and at the click of a button.
func TestFullPageBoundedAway(t *testing.T) {
	h := newHost(t)
	const n, most = 6000, 21 * 200
	h.chats("long", 300)
	b := h.login(t, "long")
	b.Wait(shows("#items .chat", "chat 299 end"))
	b.Wait(atEnd)
	b.Run("scrollTo(0, scrollY - 2000)")
	const at = "Math.round(document.getElementById('i-c285').getBoundingClientRect().top)"
	h.post("long", chat("first", "a live chat"))
	b.Wait("!document.getElementById('new').hidden && document.getElementById('i-first')")
	was := browser.Eval[int](b, at)
	for from := 0; from < n; from += 500 {
		var some []string
		for i := from; i < from+500; i++ {
			some = append(some, chat(fmt.Sprint("live", i), "a live chat"))
		}
		h.post("long", some...)
	}
	h.post("long", begin("r1", "the last prompt", "")...)
	b.Wait(shows(".state", "working")) // all has come
	if got := browser.Eval[int](b, "document.querySelectorAll('#items .chat').length"); got > most || got < most/2 {
		t.Errorf("%d entries are kept", got)
	}
	if now := browser.Eval[int](b, at); now != was {
		t.Errorf("what is read was moved from %d to %d", was, now)
	}
	for browser.Eval[bool](b, "!document.getElementById('i-r1.prompt')") {
		last := browser.Eval[string](b, "[...document.querySelectorAll('#items .chat')].at(-1).id")
		b.Run("document.getElementById('items').lastElementChild.scrollIntoView()")
		b.Wait("[...document.querySelectorAll('#items .chat')].at(-1).id !== '" + last + "'")
		if got := browser.Eval[int](b, "document.querySelectorAll('#items .chat').length"); got > most+400 {
			t.Fatalf("%d entries on the way down", got)
		}
	}
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint("live", i))
	}
	want = append(want, "r1.prompt")
	if got := shownIDs(b); !slices.Equal(got, want[len(want)-min(len(got), len(want)):]) {
		t.Errorf("got %d entries from %v to %v", len(got), got[0], got[len(got)-1])
	}
}
