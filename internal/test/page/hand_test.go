package page_test

import (
	"fmt"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// inView is an expression: the element with this selector is whole in view.
func inView(css string) string {
	return fmt.Sprintf("(() => { const e = document.querySelector(%q), r = e?.getBoundingClientRect();"+
		"return e?.checkVisibility() && r.height > 0 && r.top >= 0 && r.bottom <= innerHeight && r.left >= 0 &&"+
		" r.right <= innerWidth; })()", css)
}

// Wherever a reader of a long thread is, the title, the state, the search, its results, messages, the box to write in
// and Stop are in view: on a wide screen, on a small one and on a phone.
func TestFullPageAtHand(t *testing.T) {
	h := newHost(t)
	h.chats("long", 400)
	h.post("long", append(begin("r1", "the last prompt", ""),
		signal("r1", "beat.1", thread.TypeHeartbeat, `,"nextMs":3600000`))...)
	link := h.run("", "share", "long")
	b, shared := h.login(t, "long"), browser.Open(t, h.url())
	shared.Go(link)
	shared.Wait("location.pathname === '/t/long'")
	for _, v := range views {
		for _, tab := range []*browser.Tab{b, shared} {
			tab.Size(v.width, v.height, v.phone)
			tab.Go(h.url() + "/t/long")
			tab.Wait("document.getElementById('i-c399')")
			tab.Wait(atEnd)
			for _, place := range []string{"document.documentElement.scrollHeight", "scrollY - 3000", "0"} {
				tab.Run("scrollTo(0, " + place + ")")
				for _, css := range []string{"h1", ".state", "#find input", ".menu"} {
					tab.Wait(inView(css))
				}
			}
			tab.Run("document.querySelector('#find input').value = ''")
			tab.Type("#find input", "chat 39 end\r")
			tab.Wait(shows("#found p", "1 item found."))
			tab.Wait(inView("#found li"))
		}
		for _, place := range []string{"document.documentElement.scrollHeight", "scrollY - 3000"} {
			b.Run("scrollTo(0, " + place + ")")
			b.Wait(inView(".say textarea"))
			b.Wait(inView(".say button.main"))
			b.Wait(inView(".stopping"))
		}
		b.Run("say('a message')")
		b.Wait(inView("#status"))
	}
}

// On a wide screen the threads stand beside the one that is shown: live, those that need a person first. Another one is
// shown in its place, without loading the page again, and the way back leads to the one before. The list is filtered
// there.
func TestFullPageBeside(t *testing.T) {
	h := newHost(t)
	h.scene()
	b := h.login(t, "parser")
	b.Size(1280, 800, false)
	b.Wait("document.querySelector('#side #t-parser > ul > #t-tests')")
	b.Wait("document.querySelector('#t-parser .title[aria-current=page]')")
	const order = "[...document.querySelectorAll('#threads li')].map(e => e.id).join(' ')"
	const want = "t-lost t-printer t-ask t-parser t-tests t-flaky t-docs"
	b.Wait(shows("#t-lost .state", "dead"))
	b.Wait(order + " === '" + want + "'")
	b.Run("window.loaded = 'once'")

	b.Click("#t-docs .title")
	b.Wait("location.pathname === '/t/docs' && document.title.startsWith('done')")
	b.Wait(shows("h1", "Describe the grammar in the manual"))
	b.Wait("document.querySelectorAll('[aria-current]').length === 1")
	h.post("docs", chat("more", "And the examples?"))
	b.Wait(shows("#i-more", "And the examples?"))
	h.post("parser", chat("elsewhere", "a chat"))
	b.Type("textarea[name=text]", "say it here\r")
	b.Wait(shows("#items .chat", "say it here"))
	b.Run("history.back()")
	b.Wait(shows("h1", "Make the parser accept trailing commas"))
	b.Wait(shows("#i-elsewhere", "a chat"))
	b.Run("history.forward()")
	b.Wait(shows("h1", "Describe the grammar in the manual"))

	// What begins, ends and needs a person moves to its place.
	h.post("flaky", append(begin("again", "", ""),
		signal("again", "beat.1", thread.TypeHeartbeat, `,"nextMs":3600000`))...)
	b.Wait(order + " === 't-lost t-printer t-ask t-flaky t-parser t-tests t-docs'")
	h.post("r9", append(begin("r9", "Another failure", ""), end("r9", "failed"))...)
	b.Wait(shows("[data-section=needs] #t-r9", "Another failure"))
	b.Click("#t-r9 .title") // which was seen then
	b.Wait("document.querySelector('[data-section=earlier] #t-r9')")

	b.Run("const s = document.querySelector('#side [name=state]'); s.value = 'waiting';" +
		"s.dispatchEvent(new Event('change', {bubbles: true}))")
	b.Wait(order + " === 't-ask'")
	b.Run("const s2 = document.querySelector('#side [name=state]'); s2.value = '';" +
		"s2.dispatchEvent(new Event('change', {bubbles: true}))")
	b.Type("#side [name=q]", "TRAILING")
	b.Wait(order + " === 't-parser t-tests'")
	b.Wait("window.loaded === 'once'")

	b.Size(390, 844, true)
	b.Wait("!document.querySelector('#side').checkVisibility()")
	b.Wait(inView(".back"))
	b.Click(".back")
	b.Wait("location.pathname === '/' && document.querySelector('#t-parser')")
}
