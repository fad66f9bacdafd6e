package page_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/thread"
)

// views are the ways in which the pages are looked at.
var views = []struct {
	name          string
	width, height int64
	dark, phone   bool
}{
	{"light", 1000, 800, false, false},
	{"dark", 1000, 800, true, false},
	{"phone", 390, 844, false, true},
	{"dark phone", 390, 844, true, true},
}

// Each page has nothing against the rules of WCAG 2.1, A and AA, that axe checks: light and dark, on a phone too.
func TestFullPageAccessible(t *testing.T) {
	h := newHost(t)
	h.rich("rich")
	h.post("child", begin("r2", "Write tests for it", `,"parent":{"threadId":"rich","authorId":"a"}`)...)
	ids := []string{"rich"}
	for _, name := range []string{
		"threads/failed", "threads/pushed", "threads/orphaned", "threads/live", "threads/parent", "tools/claude",
		"tools/codex_patch",
	} {
		id := filepath.Base(name)
		h.run("", "thread", "import", id, "../../../testdata/"+name+".ndjson")
		ids = append(ids, id)
	}
	file := filepath.Join(t.TempDir(), "rich.html")
	h.run("", "thread", "export", "--html", "--out", file, "rich")
	link := h.run("", "share", "rich")
	b := h.login(t)
	shared := browser.Open(t, h.url())
	shared.Go(link)
	shared.Wait("location.pathname === '/t/rich'")
	stranger := browser.Open(t, h.url())
	exported := browser.Open(t, "file://"+file)
	exported.Go("file://" + file)
	for _, v := range views {
		audit := func(what string, b *browser.Tab) {
			b.Wait("document.readyState === 'complete'")
			for _, violation := range b.Audit() {
				t.Errorf("%s, %s: %s", v.name, what, violation)
			}
			if v.phone {
				if w := browser.Eval[int](b, "document.documentElement.scrollWidth"); w > int(v.width) {
					t.Errorf("%s, %s: the page is %d pixels wide", v.name, what, w)
				}
			}
		}
		open := func(b *browser.Tab) {
			b.Run("document.querySelectorAll('details').forEach(d => d.open = true)")
		}
		for _, tab := range []*browser.Tab{b, shared, stranger, exported} {
			tab.Scheme(v.dark)
			tab.Size(v.width, v.height, v.phone)
		}
		b.Go(h.url() + "/")
		b.Wait("document.querySelector('#t-rich > ul > #t-child')")
		audit("list", b)
		b.Go(h.url() + "/?q=none-has-this")
		b.Wait(shows("#none", "No thread"))
		audit("empty list", b)
		for _, id := range ids {
			b.Go(h.url() + "/t/" + id)
			b.Wait("document.querySelector('#items .item')")
			audit(id, b)
			open(b)
			audit(id+", unfolded", b)
		}
		b.Type("#find input", "e\r")
		b.Wait(shows("#found p", "found"))
		audit("found", b)
		stranger.Go(h.url() + "/login")
		audit("login", stranger)
		stranger.Go(h.url() + "/")
		stranger.Wait(shows("#status", "You are not logged in."))
		audit("refusal", stranger)
		b.Go(h.url() + "/t/none")
		b.Wait(shows("#status", "There is no such thread."))
		audit("problem", b)
		open(shared)
		audit("share", shared)
		open(exported)
		audit("file", exported)
	}
}

// Each control of a page is reached by Tab, has a visible focus, and the keyboard alone posts a chat, cancels a run,
// opens a fold, searches, and goes from prompt to prompt.
func TestFullPageKeyboard(t *testing.T) {
	h := newHost(t)
	h.rich("rich")
	h.post("rich", chat("second", "And the printer?"))
	b := h.login(t)
	b.Size(1000, 800, false)
	const controls = "[...document.querySelectorAll('a, button, input, select, textarea, summary, pre[tabindex]')]" +
		".filter(e => e.checkVisibility() && e.getClientRects().length)"
	for _, path := range []string{"/", "/t/rich"} {
		b.Go(h.url() + path)
		b.Wait("document.readyState === 'complete' && document.querySelector('#t-rich, #head')")
		b.Wait("!document.querySelector('#items') || document.querySelector('#i-second')")
		b.Run("window.reached = new Set(); window.blind = []; document.addEventListener('focusin', (e) => {" +
			"window.reached.add(e.target); const s = getComputedStyle(e.target);" +
			"if (s.outlineStyle === 'none' || parseFloat(s.outlineWidth) < 1)" +
			"window.blind.push(e.target.outerHTML); })")
		n := browser.Eval[int](b, controls+".length")
		for range n + 5 { // a radio group or a scroller may take one more
			b.Press("\t")
		}
		const missed = "JSON.stringify(" + controls + ".filter(e => !window.reached.has(e)).map(e => e.outerHTML))"
		if got := browser.Eval[string](b, missed); got != "[]" {
			t.Errorf("%s: Tab does not reach %s", path, got)
		}
		if got := browser.Eval[string](b, "JSON.stringify(window.blind)"); got != "[]" {
			t.Errorf("%s: no focus is seen on %s", path, got)
		}
		if n < 5 {
			t.Errorf("%s has %d controls", path, n)
		}
	}
	focus := func(css string) { b.Run("document.querySelector(" + fmt.Sprintf("%q", css) + ").focus()") }
	focus("#items .tool > summary")
	b.Press("\r")
	b.Wait("document.querySelector('#items .tool[open]')")
	focus("textarea")
	b.Press("typed\r")
	b.Wait(shows("#items .chat", "typed"))
	focus(".stopping > summary")
	b.Press("\r\tenough\r")
	b.Wait(shows("#items .notice", "cancel requested: enough"))
	b.Run("scrollTo(0, 0)")
	focus(".menu > summary")
	b.Press("n")
	b.Wait("document.activeElement.id === 'i-r1.prompt'")
	b.Press("n")
	b.Wait("document.activeElement.id === 'i-second'")
	b.Press("p")
	b.Wait("document.activeElement.id === 'i-r1.prompt'")
	b.Press("e")
	b.Wait("innerHeight + scrollY >= document.documentElement.scrollHeight - 2")
	b.Press("t")
	b.Wait("!document.querySelector('#thinking').checked")
	b.Press("/")
	b.Wait("document.activeElement.name === 'q'")
	b.Run("document.activeElement.value = ''") // a driver's key types even where its event is prevented
	b.Press("bracket\r")
	b.Wait(shows("#found mark", "bracket"))
}

// Nothing on a page moves unasked.
func TestFullPageMotion(t *testing.T) {
	h := newHost(t)
	h.post("t1", begin("r1", "work", "")...)
	b := h.login(t)
	b.Wait(shows("#t-t1", "working"))
	const moving = "document.getAnimations().length"
	for _, path := range []string{"/", "/t/t1"} {
		b.Go(h.url() + path)
		b.Wait(shows(".state", "working"))
		if n := browser.Eval[int](b, moving); n != 0 {
			t.Errorf("%d animations on %s", n, path)
		}
	}
}

// A screen reader announces that a run has ended, and none of its heartbeats, ages and items.
func TestFullPageQuiet(t *testing.T) {
	h := newHost(t)
	beat := func(n int) string {
		return signal("r1", fmt.Sprint("beat.", n), thread.TypeHeartbeat, fmt.Sprintf(
			`,"nextMs":3600000,"agent":{"pid":1,"rssBytes":%d,"cpuMs":1000,"quietMs":0}`, n<<20))
	}
	h.post("t1", append(begin("r1", "work", ""), beat(1))...)
	list, b := h.login(t), h.login(t, "t1")
	list.Wait(shows("#t-t1", "working"))
	b.Wait(shows("#pulse", "memory 1 MiB"))
	// What a screen reader announces: changes in live regions.
	const listen = "window.announced = [];" +
		"for (const e of document.querySelectorAll('[role=status], [role=alert], [role=log]," +
		"[aria-live]:not([aria-live=off])')) new MutationObserver(() => window.announced.push(e.innerText))" +
		".observe(e, {childList: true, subtree: true, characterData: true})"
	list.Run(listen)
	b.Run(listen)
	for n := 2; n < 5; n++ {
		h.post("t1", beat(n), chat(fmt.Sprint("c", n), "a chat"))
		b.Wait(shows("#pulse", fmt.Sprintf("memory %d MiB", n)))
		b.Wait(fmt.Sprintf("document.getElementById('i-c%d')", n))
	}
	for _, tab := range []*browser.Tab{list, b} {
		if got := browser.Eval[string](tab, "window.announced.join('|')"); got != "" {
			t.Errorf("announced %q", got)
		}
	}
	h.post("t1", end("r1", "completed"))
	for _, tab := range []*browser.Tab{list, b} {
		tab.Wait("window.announced.length")
		if got := browser.Eval[string](tab, "window.announced.join('|')"); got != "work: done" {
			t.Errorf("announced %q", got)
		}
	}
}
