package dispatch_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/internal/test/natsserver"
	"arbe.0sk.ar/runner/thread"
)

// reader follows a thread at one server as a browser does: by server-sent events, and from the last offset on after
// its connection broke, which it does itself now and then between two pieces of a reply.
type reader struct {
	w       *world
	v       *server
	id      string
	entries []thread.Entry
	next    string // offset
	again   int    // connections that broke off between the pieces of a round
}

// follow reads until the last entry of the thread is there, which done reports.
func (r *reader) follow(ctx context.Context, rnd *rand.Rand, done func() bool) error {
	for ctx.Err() == nil && !done() {
		if err := r.connect(ctx, rnd, done); err != nil {
			return err
		}
	}
	return nil
}

// connect reads one answer, to its end or to where the reader breaks it off.
func (r *reader) connect(ctx context.Context, rnd *rand.Rand, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // a thread that is silent: done is asked again
	defer cancel()
	c := r.w.client(r.v, r.id)
	signed, err := c.Token()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		c.Base+"/"+thread.StreamName(r.id)+"?live=sse&offset="+r.next, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+signed)
	resp, err := http.DefaultClient.Do(req)
	if ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // that is the fault
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	event, fresh := "", []thread.Entry(nil)
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ":")
		switch {
		case field == "event":
			event = strings.TrimSpace(value)
		case field == "data" && event == "data":
			if err := json.Unmarshal([]byte(value), &fresh); err != nil {
				return fmt.Errorf("%s: %w", value, err)
			}
		case field == "data" && event == "control":
			var to struct{ StreamNextOffset string }
			if err := json.Unmarshal([]byte(value), &to); err != nil {
				return fmt.Errorf("%s: %w", value, err)
			}
			r.entries, r.next = append(r.entries, fresh...), to.StreamNextOffset
			delta := len(fresh) > 0 && thread.TypeOf(fresh[len(fresh)-1].Payload) == thread.TypeDelta
			fresh = nil
			if delta && rnd.IntN(3) == 0 {
				r.again++
				return nil
			}
			if done() {
				return nil
			}
		}
	}
	return nil
}

// Two servers stand before one log in NATS, and hosts dispatch by both. Who reads at the one or at the other gets the
// same entries, pieces of replies among them, also where the connection breaks in the middle of a reply.
func TestFullBotServers(t *testing.T) {
	t.Parallel()
	nats, err := natsserver.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natsserver.Stop(nats) })
	w := emptyWorld(t)
	for range 2 {
		w.serve("--engine", "nats", "--nats-url", nats.ClientURL(), "--nats-allow-unsafe", "--nats-replicas", "1")
	}
	w.model.script(2, func(r *rand.Rand, n int, q botchaos.Question) model.Reply {
		reply := botchaos.Reply(r, n, q, houses["quiet"], nil)
		reply.Pace = model.Duration(100 * time.Millisecond)
		return reply
	})
	var talks []*talk
	for i := range uint64(6) {
		talks = append(talks, w.newTalk("quiet", botchaos.Make(i, houses["quiet"])))
	}
	hosts := w.hosts(botchaos.Hosts)
	var readers []*reader
	var playing, reading sync.WaitGroup
	settled, settle := context.WithCancel(t.Context())
	defer reading.Wait()
	defer settle()
	for i, tk := range talks {
		playing.Go(func() { w.play(tk) })
		for j, v := range w.servers {
			r := &reader{w: w, v: v, id: tk.Thread, next: "0"}
			readers = append(readers, r)
			reading.Go(func() {
				until(t, "the first chat", func() bool {
					_, err := tk.client.Read(t.Context(), "0", false, func(thread.Entry) error { return nil })
					return err == nil
				})
				err := r.follow(t.Context(), rand.New(rand.NewPCG(uint64(i), uint64(j))), func() bool {
					return settled.Err() != nil && r.next == tk.next
				})
				if err != nil {
					t.Errorf("a reader of %s: %v", tk.Thread, err)
				}
			})
		}
	}
	playing.Wait()
	w.settle(talks)
	endAll(hosts)
	for _, tk := range talks {
		if err := tk.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	reading.Wait()
	all := w.judge(talks, struck(hosts))
	deltas, again := 0, 0
	for i, r := range readers {
		tk := talks[i/2]
		if got, want := ids(r.entries), ids(tk.Entries); got != want {
			t.Errorf("a reader of %s at %s has\n%s\nwant\n%s", r.id, r.v.addr, got, want)
		}
		again += r.again
		for _, e := range r.entries {
			if thread.TypeOf(e.Payload) == thread.TypeDelta {
				deltas++
			}
		}
	}
	t.Logf("%+v; %d readers, %d pieces of replies, %d connections broken between them", all, len(readers), deltas,
		again)
	if again == 0 {
		t.Error("no connection broke in the middle of a reply")
	}
}

// ids returns the ids of entries with their payloads.
func ids(all []thread.Entry) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%s %s\n", e.ID, e.Payload)
	}
	return b.String()
}
