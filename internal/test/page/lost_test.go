package page_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/access"
	"arbe.0sk.ar/runner/internal/test/browser"
	"arbe.0sk.ar/runner/internal/test/port"
)

// A thread's page outlives its server: it reports that the server is away, and then has each entry once, in order.
func TestFullPageRestartThread(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.chats("t1", 20)
		b := h.login(t, "t1")
		b.Wait("document.getElementById('i-c19')")
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint("c", i))
		}
		for n := range 2 {
			h.stop()
			b.Wait(shows("#status", "The server is away"))
			h.start()
			id := fmt.Sprint("after", n)
			h.post("t1", chat(id, "a chat"))
			want = append(want, id)
			b.Wait(fmt.Sprintf("document.getElementById('i-%s')", id))
			b.Wait("document.getElementById('status').innerText === ''")
		}
		if got := shownIDs(b); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("got %s", got)
		}
	})
}

// A laptop that has slept while thousands of entries came: the page of a reader at the end shows the new end, and that
// of a reader elsewhere stays where it is and reports what to do.
func TestFullPageAsleep(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.chats("long", 300)
		end, elsewhere := h.login(t, "long"), h.login(t, "long")
		for _, b := range []*browser.Tab{end, elsewhere} {
			b.Wait("document.getElementById('i-c299')")
		}
		elsewhere.Wait(atEnd)
		elsewhere.Run("document.getElementById('i-c150').scrollIntoView()")
		elsewhere.Wait("Math.abs(document.getElementById('i-c150').getBoundingClientRect().top) < 150")
		// The server answers at another address for as long as the laptop sleeps.
		h.stop()
		addr := h.addr
		h.addr = port.Reserve(t)
		h.start()
		for from := 0; from < 3000; from += 500 {
			var some []string
			for i := from; i < from+500; i++ {
				some = append(some, chat(fmt.Sprint("slept", i), "a chat"))
			}
			h.post("long", some...)
		}
		h.stop()
		h.addr = addr
		h.start()
		end.Wait("document.getElementById('i-slept2999')")
		elsewhere.Wait(shows("#status", "Many entries have come meanwhile. Load the page again to see them."))
		const top = "document.getElementById('i-c150').getBoundingClientRect().top"
		if top := browser.Eval[float64](elsewhere, top); top > 150 {
			t.Errorf("what is read was moved to %v", top)
		}
		// Both pages read on.
		h.post("long", chat("awake", "a chat"))
		end.Wait("document.getElementById('i-awake')")
		elsewhere.Go(h.url() + "/t/long")
		elsewhere.Wait("document.getElementById('i-awake')")
	})
}

// A thread that is deleted under its page: the page reports it, and so does the next load.
func TestFullPageDeleted(t *testing.T) {
	engines(t, func(t *testing.T, h *host) {
		h.post("t1", chat("a", "hello"))
		b := h.login(t, "t1")
		b.Wait(shows("#items .chat", "hello"))
		h.run("", "thread", "delete", "t1")
		b.Wait("/The thread was deleted|There is no such thread/.test(document.getElementById('status').innerText)")
		b.Wait(shows("#items .chat", "hello")) // it can still be read here
		b.Wait(shows("#head .state", "deleted") + " && document.title.startsWith('deleted')")
		b.Wait("!document.querySelector('.say').checkVisibility()")
		b.Go(h.url() + "/t/t1")
		b.Wait(shows("#status", "There is no such thread."))
	})
}

// A login that expires while the page is open: list and thread report it, so does a chat that is posted then, and what
// was typed stays.
func TestFullPageExpires(t *testing.T) {
	h := newHost(t)
	h.post("t1", chat("a", "hello"))
	secret, err := os.ReadFile(filepath.Join(h.data, "arbe", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/t/t1"} {
		b := browser.Open(t, h.url())
		until := time.Now().Add(6 * time.Second)
		sealed := access.Seal(bytes.TrimSpace(secret), access.Session{Until: until, Most: until})
		b.Cookie(h.url(), h.cookie(), sealed)
		b.Go(h.url() + path)
		b.Wait("document.querySelector('#t-t1, #head')")
		if path != "/" {
			b.Type("textarea[name=text]", "too late")
		}
		b.Wait(shows("#status", "Your login has expired. Run arbe open again."))
		if path != "/" {
			b.Run("document.getElementById('status').textContent = ''")
			b.Click(".say button.main")
			b.Wait(shows("#status", "Your login has expired."))
			b.Wait("document.querySelector('textarea').value === 'too late'")
		}
		b.Go(h.url() + path)
		b.Wait(shows("#status", "Your login has expired."))
		b.Wait("document.body.innerText.includes('arbe open')")
		b.Go(h.run("", "open", "--print-url", "t1")) // and a new login helps
		b.Wait(shows("#items .chat", "hello"))
	}
}
