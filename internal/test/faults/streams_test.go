package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

// producing is a writer of the Durable Streams protocol, who numbers what he writes, and two readers of his.
type producing struct {
	at    string // the server's address
	name  string // of the stream
	kind  string // its content type
	token string
	acked atomic.Int64 // messages, each of which is its number

	seen []string // by the live reader, before and after each kill
}

func (p *producing) request(
	ctx context.Context,
	method, query, body string,
	header ...string,
) (*http.Response, error) {
	req, err := http.NewRequestWithContext(
		ctx,
		method,
		"http://"+p.at+"/v1/stream/"+p.name+query,
		strings.NewReader(body),
	)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", p.kind)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return http.DefaultClient.Do(req)
}

// write writes the numbers, each until it is acknowledged. With the one after stop is closed it ends.
func (p *producing) write(t *testing.T, stop <-chan struct{}) {
	for t.Context().Err() == nil {
		n := p.acked.Load()
		resp, err := p.request(
			t.Context(),
			http.MethodPost,
			"",
			fmt.Sprintf("%d\n", n),
			"Producer-Id",
			"p",
			"Producer-Epoch",
			"0",
			"Producer-Seq",
			strconv.FormatInt(n, 10),
		)
		if err != nil {
			time.Sleep(time.Millisecond) // it was killed: between two tries
			continue
		}
		body, _ := io.ReadAll(resp.Body) // for the error
		_ = resp.Body.Close()            // nothing was written through it
		switch {
		case resp.StatusCode/100 == 2:
			if p.acked.Add(1); done(stop) {
				return
			}
		case resp.StatusCode < 500:
			t.Errorf("%s: message %d: %d %s", p.name, n, resp.StatusCode, body)
			return
		}
	}
}

// follow reads the stream's events, and continues where it was when the server is there again, until all that was
// written is seen.
func (p *producing) follow(t *testing.T, written context.Context) {
	for offset := "-1"; !p.all(written) && t.Context().Err() == nil; {
		offset = p.events(t, written, offset)
	}
}

// all reports whether all that there will be was seen.
func (p *producing) all(written context.Context) bool {
	return written.Err() != nil && len(p.seen) >= int(p.acked.Load())
}

// events reads one event stream, and returns the offset to read on from.
func (p *producing) events(t *testing.T, written context.Context, offset string) string {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // leaves a silent stream, too
	defer cancel()
	if written.Err() == nil {
		defer context.AfterFunc(written, cancel)() // at the writers' end the reader checks again
	}
	resp, err := p.request(ctx, http.MethodGet, "?live=sse&offset="+offset, "")
	if err != nil {
		time.Sleep(time.Millisecond) // it was killed: between two tries
		return offset
	}
	defer resp.Body.Close() // it was only read
	var data []string       // counts once its offset has arrived
	event := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	for !p.all(written) && lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch {
		case name == "event":
			event = strings.TrimSpace(value)
		case name == "data" && event == "data":
			data = append(data, numbers(value)...)
		case name == "data" && event == "control":
			var c struct{ StreamNextOffset string }
			if err := json.Unmarshal([]byte(value), &c); err != nil {
				return offset // it was cut
			}
			offset, p.seen, data = c.StreamNextOffset, append(p.seen, data...), nil
		}
	}
	return offset
}

func done(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// numbers are the messages in what a read of a stream gives.
func numbers(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return c < '0' || c > '9' })
}

// read reads the stream from its start to its end.
func (p *producing) read(t *testing.T) (all []string) {
	t.Helper()
	for offset := "-1"; ; {
		resp, err := p.request(t.Context(), http.MethodGet, "?offset="+offset, "")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d, %v: %.200s", resp.StatusCode, err, body)
		}
		_ = resp.Body.Close() // it was only read
		all, offset = append(all, numbers(string(body))...), resp.Header.Get("Stream-Next-Offset")
		if resp.Header.Get("Stream-Up-To-Date") == "true" {
			return all
		}
	}
}

// The same for streams of the Durable Streams protocol. What a numbering writer got acknowledged is there once, in
// order, however often it was sent. A live reader that resumes from its offset misses nothing and reads nothing twice,
// and all that it read is there in the end.
func TestServerKeepsStreams(t *testing.T) {
	t.Parallel()
	rounds, err := strconv.Atoi(os.Getenv("ARBE_SERVER_KILLS"))
	if err != nil {
		rounds = 10
	}
	v := newService(t)
	v.start(t)
	streams := []*producing{
		{
			name: "json",
			kind: "application/json",
		}, {name: "text/plain", kind: "text/plain"}, {name: "more/json", kind: "application/json"},
	}
	stop := make(chan struct{})
	written, allWritten := context.WithCancel(t.Context())
	var writers, readers sync.WaitGroup
	for _, p := range streams {
		out, err := v.arbe("token", "mint", "--stream", p.name).Output()
		if err != nil {
			t.Fatal(err)
		}
		p.at, p.token = v.addr, strings.TrimSpace(string(out))
		resp, err := p.request(t.Context(), http.MethodPut, "", "")
		if err != nil || resp.StatusCode != http.StatusCreated {
			t.Fatalf("%v, %v", resp, err)
		}
		_ = resp.Body.Close() // there is nothing in it
		writers.Go(func() { p.write(t, stop) })
		readers.Go(func() { p.follow(t, written) })
	}
	// A thread is read live as well, by its own client.
	var followed []string
	client := v.client(t, "t1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var posted atomic.Int64
	writers.Go(func() {
		for {
			e := thread.Entry{
				ID:      strconv.FormatInt(posted.Load(), 10),
				TS:      thread.Stamp(time.Now()),
				Payload: []byte(`{"type":"chat"}`),
			}
			if _, err := client.Append(ctx, []thread.Entry{e}); err == nil {
				posted.Add(1)
				if done(stop) {
					return
				}
			}
		}
	})
	readers.Go(func() {
		for ctx.Err() == nil {
			err := client.Follow(ctx, "0", func(e thread.Entry) error {
				followed = append(followed, e.ID)
				return nil
			}, func() bool { return written.Err() != nil && len(followed) >= int(posted.Load()) })
			if err == nil {
				return
			}
			followed = nil // it was away for too long, and begins again
		}
	})
	for range rounds {
		time.Sleep(rand.N(150 * time.Millisecond)) // the random moment
		if err := v.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = v.cmd.Wait() // it was killed
		v.start(t)
	}
	close(stop)
	writers.Wait()
	allWritten()
	readers.Wait()
	total := len(followed)
	inOrder := func(name string, got []string) {
		t.Helper()
		for i, n := range got {
			if n != strconv.Itoa(i) {
				t.Fatalf("%s: message %d is %s", name, i, n)
			}
		}
	}
	for _, p := range streams {
		all := p.read(t)
		inOrder(p.name, all)
		inOrder(p.name+", live", p.seen)
		if acked := int(p.acked.Load()); len(all) != acked || len(p.seen) != acked {
			t.Errorf(
				"%s: %d messages were acknowledged, %d are there, %d were seen live",
				p.name,
				acked,
				len(all),
				len(p.seen),
			)
		}
		total += len(all)
	}
	inOrder("the thread, live", followed)
	if n := len(v.entries(t, "t1")); n < int(posted.Load()) || len(followed) != n {
		t.Errorf("%d entries were acknowledged, %d are there, %d were seen live", posted.Load(), n, len(followed))
	}
	t.Logf("%d kills, %d messages, none lost, none doubled", rounds, total)
}
