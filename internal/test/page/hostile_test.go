package page_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/hostile"
	"arbe.0sk.ar/runner/thread"
)

// foreign selects elements that a page must not have; %s is where the items are. Chromium reports what runs, and what
// is asked of another server, or what the policy has kept it from.
var foreign = map[string]string{
	"an element of a text": "%s :is(script, iframe, svg, math, style, link, base, meta, form, button, object, embed, " +
		"video, audio, noscript, template, textarea, x-y, file)",
	"an image elsewhere": "img:not([src^='/t/'], [src^='/assets/'], [src^='data:image/'])",
	"an address":         "%s a[href]:not([href^='/t/'], [href^='#i-'], [href^='http'], [href^='mailto:'])",
	"a style":            "[style]",
}

// checkForeign fails the test for what the open page must not have.
func checkForeign(t *testing.T, b *browser.Tab, what, items string) {
	t.Helper()
	b.Run("document.querySelectorAll('details').forEach(d => d.open = true)")
	for name, css := range foreign {
		const all = "[...document.querySelectorAll(%q)].map(e => e.outerHTML).join('\\n')"
		if got := browser.Eval[string](b, fmt.Sprintf(all, strings.ReplaceAll(css, "%s", items))); got != "" {
			t.Errorf("%s: %s: %.500s", what, name, got)
		}
	}
	if got := browser.Eval[string](b, "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"+
		".map(a => a.name).filter(n => n.startsWith('on')).join(' ')"); got != "" {
		t.Errorf("%s: handlers %s", what, got)
	}
}

// checkTexts fails the test for a text that the open page does not show as it is.
func checkTexts(t *testing.T, b *browser.Tab, what string, texts []string) {
	t.Helper()
	plain := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	shown := plain(browser.Eval[string](b, "document.body.textContent"))
	for _, text := range texts {
		if !strings.Contains(shown, plain("stderr: "+view.Visible(text)+" end")) {
			t.Errorf("%s does not show %.80q", what, text)
		}
	}
}

// Whatever an agent, a tool or another writer posts, in any field, the page and an exported file show it as text:
// nothing runs, nothing is asked of another server, the policy is not even tried. The entries come live, and again as
// they are loaded.
func TestFullPageHostile(t *testing.T) {
	h := newHost(t)
	b := h.login(t)
	n := 0
	for texts := range slices.Chunk(hostile.Texts, 25) {
		id := fmt.Sprint("evil", n)
		h.post(id, chat("first", "first"))
		b.Go(h.url() + "/t/" + id)
		b.Wait("document.getElementById('i-first')")
		last := ""
		var lines strings.Builder
		for _, text := range texts {
			run := fmt.Sprint("r", n)
			for _, e := range hostile.Entries(run, n, text) {
				lines.Write(append(e.AppendJSON(nil), '\n'))
			}
			last = "i-" + run + ".end.0"
			n++
		}
		file := filepath.Join(t.TempDir(), "evil.ndjson")
		if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		h.run("", "thread", "import", id, file)
		b.Wait(fmt.Sprintf("document.getElementById(%q)", last))
		checkForeign(t, b, id+" live", "#items")

		b.Go(h.url() + "/t/" + id)
		// Its script has gone to its end: before that it would take a reader who scrolls up back there.
		b.Wait(fmt.Sprintf("document.getElementById(%q) && document.readyState === 'complete' && scrollY > 0", last))
		for browser.Eval[bool](b, "!!document.querySelector('.older')") {
			first := browser.Eval[string](b, "document.querySelector('#items article').id")
			b.Run("document.querySelector('.older').scrollIntoView()")
			b.Wait("document.querySelector('#items article').id !== " + string(thread.Marshal(first)))
		}
		checkForeign(t, b, id+" loaded", "#items")
		checkTexts(t, b, id, texts)

		html := filepath.Join(t.TempDir(), id+".html")
		h.run("", "thread", "export", "--html", "--out", html, id)
		f := browser.Open(t, "file://"+html)
		f.Go("file://" + html)
		f.Wait("document.readyState === 'complete' && [...document.images].every(i => i.complete)")
		checkForeign(t, f, id+" in a file", "#items")
		checkTexts(t, f, id+" in a file", texts)
	}
}

// A title, a model, a box, a parent or an error's class that somebody else has chosen are text in the list, live and
// loaded.
func TestFullPageHostileList(t *testing.T) {
	h := newHost(t)
	b := h.login(t)
	b.Wait(shows("#none", "No thread"))
	threads := len(hostile.Texts)
	for n, text := range hostile.Texts {
		var entries []string
		for _, e := range hostile.Entries(fmt.Sprint("r", n), n, text) {
			entries = append(entries, string(e.AppendJSON(nil)))
		}
		h.append(h.secret(), fmt.Sprint("evil", n), "["+strings.Join(entries, ",")+"]")
	}
	b.Wait(fmt.Sprintf("document.querySelectorAll('#threads li[data-state]').length === %d", threads))
	checkForeign(t, b, "the live list", "#threads")
	b.Go(h.url() + "/")
	b.Wait("document.querySelector('#more')")
	b.Run("document.querySelector('#more').scrollIntoView()")
	b.Wait(fmt.Sprintf("document.querySelectorAll('#threads li[data-state]').length === %d", threads))
	checkForeign(t, b, "the loaded list", "#threads")
}
