package page_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"arbe.0sk.ar/runner/internal/test/browser"
)

// counter passes requests on to a host, and counts them.
type counter struct {
	mu    sync.Mutex // guards the fields below
	all   int
	lives int // live answers so far
	open  int // of them
}

// newCounter returns the address of a counter before a host.
func newCounter(t *testing.T, h *host) (*counter, string) {
	t.Helper()
	c := &counter{}
	to, err := url.Parse(h.url())
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		live := strings.HasSuffix(r.URL.Path, "/live")
		c.add(live, 1)
		defer func() {
			_ = recover() // a browser that goes ends a live answer so
			if live {
				c.add(live, -1)
			}
		}()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return c, "http://localhost:" + port
}

func (c *counter) add(live bool, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.all++
	}
	if live {
		c.open += n
		c.lives += max(n, 0)
	}
}

// now returns how many requests and live answers there were so far, and how many live answers are open.
func (c *counter) now() (all, lives, open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all, c.lives, c.open
}

// All tabs of a browser share one connection: a browser has six to a server, and the seventh tab is served as the first
// one. What comes reaches each tab, whichever is looked at, and nothing is asked for meanwhile. A tab that is closed
// leaves the others theirs.
func TestFullPageTabs(t *testing.T) {
	h := newHost(t)
	count, address := newCounter(t, h)
	const n = 9
	for i := range n {
		h.post(fmt.Sprint("t", i), begin(fmt.Sprint("r", i), fmt.Sprint("prompt ", i), "")...)
	}
	first := browser.Open(t, h.url(), address)
	first.Go(h.run("", "open", "--print-url", "--url", address))
	first.Wait(shows("#t-t8", "prompt 8"))
	tabs := []*browser.Tab{first}
	for i := range n {
		tab := first.Another()
		tab.Go(fmt.Sprint(address, "/t/t", i))
		tab.Wait(shows("#items .chat", fmt.Sprint("prompt ", i)))
		tabs = append(tabs, tab)
	}
	say := func(what string) {
		for i := range n {
			h.post(fmt.Sprint("t", i), chat(fmt.Sprint(what, i), fmt.Sprint(what, " ", i)))
		}
		for i, tab := range tabs[1:] {
			if tab != nil {
				tab.Wait(shows("#items .chat", fmt.Sprint(what, " ", i)))
			}
		}
	}
	say("hello")
	all, _, open := count.now()
	if open != 1 {
		t.Errorf("%d connections for %d tabs", open, len(tabs))
	}
	say("again")
	h.post("t3", end("r3", "completed"))
	first.Wait(shows("#t-t3 > article .state", "done"))
	tabs[4].Wait("document.title.startsWith('done')")
	if later, _, open := count.now(); later != all || open != 1 {
		t.Errorf("%d requests while entries came, %d connections", later-all, open)
	}
	tabs[2].Go("about:blank")
	tabs[2] = nil
	say("third")
	h.stop()
	for _, tab := range tabs {
		if tab != nil {
			tab.Wait(shows("#status", "The server is away"))
		}
	}
	h.start()
	say("back")
	for _, tab := range tabs {
		if tab != nil {
			tab.Wait("document.getElementById('status').innerText === ''")
		}
	}
	if _, _, open := count.now(); open != 1 {
		t.Errorf("%d connections once the server is back", open)
	}
}
