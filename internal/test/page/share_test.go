package page_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
)

// The form of a thread's page makes a link by which a browser without a login reads it, and the button beside it ends
// all links of the thread.
func TestFullPageShareForm(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.post("t1", begin("r1", "fix the parser", "")...)
		b := h.login(t, "t1")
		b.Click(".menu > summary")
		b.Click(".links > summary")
		b.Run("document.querySelector('.share select').value = '1'")
		b.Click(".share button")
		b.Wait("document.querySelector('.share output').textContent.includes('/share#')")
		b.Wait(shows("#status", "Everyone who has the link can read this thread."))
		output := browser.Eval[string](b, "document.querySelector('.share output').textContent")
		link, until, _ := strings.Cut(output, " ")
		if !strings.HasPrefix(link, h.url()+"/share#") || !strings.Contains(until, "until ") {
			t.Fatalf("got %q, %q", link, until)
		}
		other := browser.Open(t, h.url())
		other.Go(link)
		other.Wait("location.pathname === '/t/t1'")
		other.Wait(shows("#items .chat", "fix the parser"))
		if list := h.run("", "share", "--list", "t1"); strings.Count(list, "  open") != 1 {
			t.Errorf("got %s", list)
		}
		b.Click(".revoke button")
		b.Wait(shows("#status", "1 link revoked."))
		other.Go(h.url() + "/t/t1")
		other.Wait(shows("#status", "this link was revoked"))
	})
}
