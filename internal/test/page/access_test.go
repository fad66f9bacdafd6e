package page_test

import (
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
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
		b.Type("#find input", "e")
		b.Click("#find button")
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
