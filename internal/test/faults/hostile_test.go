package faults_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hostile has what a siege attacks with: tokens of its own, and bodies that are made once. It is a process of its own
// at the lowest priority: attackers have machines of their own, and what is measured is the server.
type hostile struct {
	addr   string
	tokens map[string]string // by stream
	all    []*attack
}

// hostileVar is the variable that makes this program a hostile one. It holds the server's address and the tokens.
const hostileVar = "ARBE_SIEGE_HOSTILE"

// hostileMain attacks until its stdin ends, and prints the result of each attack.
func hostileMain() int {
	h := &hostile{tokens: map[string]string{}}
	for field := range strings.FieldsSeq(os.Getenv(hostileVar)) {
		if name, token, ok := strings.Cut(field, "="); ok {
			h.tokens[name] = token
		} else {
			h.addr = field
		}
	}
	h.arm()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, a := range h.all {
		for i := range a.many {
			all.Go(func() {
				for ctx.Err() == nil {
					a.do(ctx, i)
					a.done.Add(1)
				}
			})
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	all.Wait()
	for _, a := range h.all {
		fmt.Printf("%-30s %6d times: %s\n", a.name, a.done.Load(), a.answers())
	}
	return 0
}

// besiege begins a siege, and returns what ends it and returns its report.
func besiege(t *testing.T, v *service) (end func() string) {
	env := v.addr
	for _, id := range []string{"h0", "h1", "h2", "h3"} {
		env += " arbe-thread-" + id + "=" + v.mint(t, id)
	}
	for _, name := range []string{"text", "json", "fork", "producers"} {
		out, err := v.arbe("token", "mint", "--stream", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env += " " + name + "=" + strings.TrimSpace(string(out))
	}
	cmd := exec.Command("nice", "-n", "19", os.Args[0])
	cmd.Env = append(os.Environ(), hostileVar+"="+env)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() string {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
		return out.String()
	}
}

// attack is one way to harm a server.
type attack struct {
	name string
	many int // do it at the same time
	do   func(ctx context.Context, i int)
	done atomic.Int64

	mu  sync.Mutex
	got map[string]int // answers, by their status
}

func (a *attack) answers() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var text []string
	for _, status := range slices.Sorted(maps.Keys(a.got)) {
		text = append(text, fmt.Sprintf("%s: %d", status, a.got[status]))
	}
	return strings.Join(text, ", ")
}

func (a *attack) note(status string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.got == nil {
		a.got = map[string]int{}
	}
	a.got[status]++
}

// add adds an attack that sends a request and reads the answer.
func (h *hostile) add(name string, many int, method, stream, query string, header string, body []byte) {
	a := &attack{name: name, many: many}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: many}}
	a.do = func(ctx context.Context, i int) {
		root := "/v1/stream/"
		if strings.HasPrefix(stream, "arbe-thread-") {
			root = "/api/stream/"
		}
		r, err := http.NewRequestWithContext(ctx, method, "http://"+h.addr+root+stream+query, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Authorization", "Bearer "+h.tokens[stream])
		r.Header.Set("Content-Type", "application/json")
		for line := range strings.Lines(header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			r.Header.Set(name, strings.ReplaceAll(value, "#", fmt.Sprint(a.done.Load(), i)))
		}
		resp, err := client.Do(r)
		if err != nil {
			a.note("broken")
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body) // it may break off
		_ = resp.Body.Close()
		a.note(fmt.Sprint(resp.StatusCode))
	}
	h.all = append(h.all, a)
}

// addRaw adds an attack that sends some bytes on a connection of its own and reads nothing, until the server closes it
// or a while is over.
func (h *hostile) addRaw(name string, many int, send func(w io.Writer, i int), while time.Duration) {
	a := &attack{name: name, many: many}
	a.do = func(ctx context.Context, i int) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.addr)
		if err != nil {
			a.note("refused")
			return
		}
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10) // the less it takes, the better
		over := time.NewTimer(while)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			send(c, i)
		}()
		select {
		case <-over.C:
		case <-ctx.Done():
		}
		_ = c.Close()
		<-sent
		a.note("closed")
	}
	h.all = append(h.all, a)
}

// head is the head of a request for a stream.
func (h *hostile) head(method, path, stream, more string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\n%s\r\n", method, path, h.tokens[stream], more)
}

// arm makes all attacks.
func (h *hostile) arm() {
	fill := func(element string, size int) []byte {
		return []byte("[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]")
	}
	entry := func(id, text string) string {
		return fmt.Sprintf(`{"id":%q,"ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":%q}}`, id, text)
	}
	large := strings.Repeat("x", 7<<20)
	var many []string
	for i := range 8 {
		many = append(many, entry(fmt.Sprint("large", i), large))
	}
	post := []byte("[" + strings.Join(many, ",") + "]")
	spaced := bytes.Replace(post, []byte(`"type":`), []byte(`"type" :`), -1)
	const text, jsonKind = "Content-Type: text/plain", "Content-Type: application/json"

	h.add("a stream of text", 1, "PUT", "text", "", text, bytes.Repeat([]byte("\n"), 60<<20))
	h.add("a stream of large messages", 1, "PUT", "json", "", jsonKind,
		[]byte("[\""+large+"\",\""+large+"\",\""+large+"\"]"))
	h.add("empty objects", 2, "POST", "arbe-thread-h0", "", "", fill("{}", 16<<20))
	h.add("numbers for messages", 2, "POST", "json", "", "", fill("1", 2<<20))
	h.add("as many messages as may be", 1, "POST", "json", "", "", fill("1", 2*9_999))
	h.add("posts of 56 MiB", 4, "POST", "arbe-thread-h1", "", "", post)
	h.add("the same with spaces", 1, "POST", "arbe-thread-h1", "", "", spaced)
	h.add("a fork far behind its offset", 2, "PUT", "fork", "",
		"Stream-Forked-From: /v1/stream/text\nStream-Fork-Offset: -1\n"+
			"Stream-Fork-Sub-Offset: 1200000000\nStream-Fork-Authorization: Bearer "+
			h.tokens["text"], nil)
	h.add("producers without end", 1, "POST", "text", "", text+"\nProducer-Id: p#\nProducer-Epoch: 0\nProducer-Seq: 0",
		[]byte("x"))
	h.add("whole reads of a large thread", 2, "GET", "arbe-thread-h1", "?offset=0", "", nil)
	h.add("heads of a large thread", 2, "HEAD", "arbe-thread-h1", "?offset=0", "", nil)
	h.add("tokens that are made up", 2, "POST", "arbe-thread-none", "", "", []byte(entry("a", "b")))

	h.addRaw("posts that do not end", 49, func(w io.Writer, i int) {
		stream := fmt.Sprint("arbe-thread-h", i%4)
		_, _ = io.WriteString(w, h.head("POST", "/api/stream/"+stream, stream, "Content-Length: 58720256\r\n"))
		_, _ = w.Write(post[:50<<20])
	}, 20*time.Second)
	h.addRaw("slow reads of large messages", 64, func(w io.Writer, _ int) {
		_, _ = io.WriteString(w, h.head("GET", "/v1/stream/json?offset=-1", "json", ""))
	}, 30*time.Second)
	h.addRaw("listeners to line ends", 8, func(w io.Writer, _ int) {
		_, _ = io.WriteString(w, h.head("GET", "/v1/stream/text?offset=-1&live=sse", "text", ""))
	}, 30*time.Second)
	h.addRaw("measurements, and none is read", 4, func(w io.Writer, _ int) {
		for request, err := "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", error(nil); err == nil; {
			_, err = io.WriteString(w, request)
		}
	}, 20*time.Second)
	h.addRaw("connections that say nothing", 300, func(io.Writer, int) {}, 30*time.Second)
}
