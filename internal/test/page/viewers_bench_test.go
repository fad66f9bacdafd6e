package page_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/procfs"
	"arbe.0sk.ar/runner/thread"
)

// BenchmarkPageViewers measures what 200 viewers of one growing thread cost a server, against what 200 readers of the
// thread's events cost another one. Each of b.N turns connects the clients of one server after the other and appends
// 100 entries of 1 KB, each once all clients have the one before.
func BenchmarkPageViewers(b *testing.B) {
	const clients, entries = 200, 100
	viewers, readers := newCrowd(b, (*host).viewer, "event: head\n"), newCrowd(b, (*host).reader, `"upToDate":true`)
	for _, c := range []*crowd{viewers, readers} {
		c.turn(b, clients, entries) // fills caches
		c.cpu = 0
	}
	for range b.N {
		viewers.turn(b, clients, entries)
		readers.turn(b, clients, entries)
	}
	delivered := float64(b.N * clients * entries)
	b.ReportMetric(float64(viewers.cpu.Nanoseconds())/1000/delivered, "µs-cpu/viewer")
	b.ReportMetric(float64(readers.cpu.Nanoseconds())/1000/delivered, "µs-cpu/reader")
	b.ReportMetric(viewers.cpu.Seconds()/readers.cpu.Seconds(), "times-the-reader")
	b.ReportMetric(viewers.memory, "MiB-viewers")
	b.ReportMetric(readers.memory, "MiB-readers")
	b.ReportMetric(0, "ns/op")
}

// crowd is a server of its own with clients of one kind, which all follow the same thread.
type crowd struct {
	*host
	secret   []byte
	head     func(h *host, secret []byte) string // of a request for what follows the thread's end
	received string                              // is in the last lines of what a client gets for an append
	entries  int                                 // appended so far
	cpu      time.Duration                       // of the server while entries were appended
	memory   float64                             // of the server with its clients, in MiB, after the last turn
}

func newCrowd(b *testing.B, head func(h *host, secret []byte) string, received string) *crowd {
	h := newHost(b)
	c := &crowd{host: h, secret: h.secret(), head: head, received: received}
	c.append(c.secret, "long", chat("first", "begin"))
	return c
}

// turn connects clients, appends entries, and disconnects the clients.
func (c *crowd) turn(b *testing.B, clients, entries int) {
	b.Helper()
	request, got := c.head(c.host, c.secret), make(chan struct{}, clients)
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			b.Fatal(err)
		}
		conns = append(conns, conn)
		if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
			b.Fatal(err)
		}
		go func() {
			in := bufio.NewReaderSize(conn, 64<<10)
			for {
				line, err := in.ReadSlice('\n')
				if err != nil {
					return // it is closed in the end
				}
				if strings.Contains(string(line), c.received) {
					got <- struct{}{}
				}
			}
		}()
	}
	all := func() {
		late := time.After(time.Minute)
		for range clients {
			select {
			case <-got:
			case <-late:
				b.Fatal("not all clients have the entry")
			}
		}
	}
	all() // the first event: they are at the end
	text := strings.Repeat("a paragraph with *markdown* and `code`. ", 25)
	before := c.stat(b).CPU
	for range entries {
		c.append(c.secret, "long", chat(fmt.Sprint("c", c.entries), text))
		c.entries++
		all()
	}
	now := c.stat(b)
	c.cpu += now.CPU - before
	c.memory = float64(now.RSS) / (1 << 20)
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			b.Error(err)
		}
	}
}

// stat returns the server's counters.
func (c *crowd) stat(b *testing.B) procfs.Stat {
	b.Helper()
	s, err := procfs.Read(c.pid)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// reader is the head of a request for the events of the thread.
func (h *host) reader(secret []byte) string {
	signed, err := token.Sign(secret, token.Grant{
		Stream: thread.StreamName("long"), Scope: []string{token.ScopeRead}, Until: time.Now().Add(time.Hour),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return fmt.Sprintf("GET /api/stream/%s?live=sse&offset=now HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n",
		thread.StreamName("long"), h.addr, signed)
}

var (
	loginCode = regexp.MustCompile(`#(.+)$`)
	pageTail  = regexp.MustCompile(`data-after="(\d+)"`)
)

// viewer is the head of the request that a page of the thread makes, at the thread's end.
func (h *host) viewer([]byte) string {
	code := loginCode.FindStringSubmatch(h.run("", "open", "--print-url"))
	if code == nil {
		h.t.Fatal("no link")
	}
	resp, err := http.Post(h.url()+"/login", "application/json", strings.NewReader(fmt.Sprintf(`{"code":%q}`, code[1])))
	if err != nil {
		h.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if len(resp.Cookies()) != 1 {
		h.t.Fatalf("no login: %s", resp.Status)
	}
	cookie := resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
	req, err := http.NewRequest("GET", h.url()+"/t/long", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Cookie", cookie)
	if resp, err = http.DefaultClient.Do(req); err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	tail := pageTail.FindSubmatch(body)
	if tail == nil {
		h.t.Fatalf("no page: %s", resp.Status)
	}
	return fmt.Sprintf("GET /t/long/live?after=%s HTTP/1.1\r\nHost: %s\r\nCookie: %s\r\n", tail[1], h.addr, cookie)
}
