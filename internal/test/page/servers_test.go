package page_test

import (
	"os"
	"path/filepath"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/natsserver"
)

// Several servers in front of one NATS show the same page. A login code that one made is spent at another, once; a
// share that one made is read at the other, and revoked for both; a logout at one ends the login at the other.
func TestFullPageServers(t *testing.T) {
	s, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(s) })
	args := []string{
		"--engine", "nats", "--nats-url", s.ClientURL(), "--nats-shards", "2", "--nats-replicas", "1",
		"--nats-allow-unsafe",
	}
	one := newHost(t, args...)
	secret, err := os.ReadFile(filepath.Join(one.data, "arbe", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	two := newHostWith(t, string(secret), args...)

	one.rich("t1")
	const items = "[...document.querySelectorAll('#items .item')].map(e => e.outerHTML).join('\\n')"
	at := func(path string) (first, second string) {
		t.Helper()
		a, b := one.login(t), two.login(t)
		for _, tab := range []*browser.Tab{a, b} {
			tab.Wait(shows("#t-t1", "trailing commas"))
		}
		a.Go(one.url() + path)
		b.Go(two.url() + path)
		a.Wait("document.querySelector('#items .item')")
		b.Wait("document.querySelector('#items .item')")
		return browser.Eval[string](a, items), browser.Eval[string](b, items)
	}
	if first, second := at("/t/t1"); first != second || len(first) < 1000 {
		t.Errorf("the servers show\n%s\nand\n%s", first, second)
	}

	// A code of the one at the other; then it is spent at both.
	link := one.run("", "open", "--print-url", "--url", two.url(), "t1")
	b := browser.Open(t, one.url(), two.url())
	b.Go(link)
	b.Wait("location.pathname === '/t/t1'")
	b.Wait("document.querySelector('#items .item')")
	other := browser.Open(t, one.url())
	other.Go(one.url() + link[len(two.url()):])
	other.Wait(shows("#status", "used already"))

	// What is posted by the one's page comes live to the other's.
	c := one.login(t, "t1")
	c.Type("textarea[name=text]", "look at the printer")
	c.Click(".say button.main")
	c.Wait(shows("#items .chat", "look at the printer"))
	b.Wait(shows("#items .chat", "look at the printer"))

	// A share of the one is read at the other until it is revoked.
	share := one.run("", "share", "--url", two.url(), "t1")
	reader := browser.Open(t, one.url(), two.url())
	reader.Go(share)
	reader.Wait("location.pathname === '/t/t1'")
	reader.Wait(shows("h1", "trailing commas"))
	one.run("", "share", "--revoke", "t1")
	reader.Go(two.url() + "/t/t1")
	reader.Wait(shows("#status", "this link was revoked"))
	reader.Go(one.url() + share[len(two.url()):])
	reader.Wait(shows("#status", "this link was revoked"))

	// A logout at the other: the cookie is good at neither, also for a copy of it.
	cookie := b.Cookies(two.url())
	b.Go(two.url() + "/")
	b.Wait("document.getElementById('threads')")
	b.Click("form[action='/logout'] button")
	b.Wait("location.pathname === '/login'")
	for _, h := range []*host{one, two} {
		copied := browser.Open(t, h.url())
		for _, value := range cookie {
			copied.Cookie(h.url(), h.cookie(), value)
		}
		copied.Go(h.url() + "/")
		copied.Wait(shows("#status", "You have logged out."))
	}
}
