package bots_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/internal/test/model"
	"arbe.0sk.ar/runner/thread"
)

// BenchmarkMention: from a member's request that posts a mention to the first byte of the request to the model, and
// from the time at which the server has a piece of the reply to the reader that follows by server-sent events. One
// arbe serve --dispatch, its database and the provider on this machine.
func BenchmarkMention(b *testing.B) {
	h := newHouse(b, model.Reply{
		Text: strings.Repeat("word ", 30), Pace: model.Duration(50 * time.Millisecond), Times: -1,
	})
	h.serve(h.dispatching("--dispatch")...)
	id := h.thread()
	cl := h.client(id)
	ctx, cancel := context.WithCancel(b.Context())
	pieces, ended := make(chan time.Duration, 10_000), make(chan bool, 1)
	done := make(chan error, 1)
	go func() { done <- h.follow(ctx, id, pieces, ended) }()
	var asked, shown []time.Duration
	for i := range b.N {
		e := thread.Entry{
			ID: fmt.Sprint("m", i), AuthorID: ann, TS: "2026-06-01T12:00:00.000Z",
			Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: "@piet hello"}),
		}
		began := time.Now()
		if _, err := cl.Append(ctx, []thread.Entry{e}); err != nil {
			b.Fatal(err)
		}
		asked = append(asked, (<-h.asked).Sub(began))
		<-ended
	}
	cancel()
	<-done // its connection was cut
	close(pieces)
	for d := range pieces {
		shown = append(shown, d)
	}
	report(b, "asked", asked)
	report(b, "shown", shown)
	b.ReportMetric(0, "ns/op")
}

// follow reads a thread by server-sent events. It sends how late each piece of a reply comes, and each end. The server
// ends an answer after a minute: the next one continues behind it.
func (h *house) follow(ctx context.Context, id string, pieces chan<- time.Duration, ended chan<- bool) (err error) {
	for at := "0"; err == nil && ctx.Err() == nil; {
		at, err = h.answer(ctx, id, at, pieces, ended)
	}
	return err
}

// answer reads one answer from an offset, and returns the next one.
func (h *house) answer(
	ctx context.Context, id, from string, pieces chan<- time.Duration, ended chan<- bool,
) (next string, err error) {
	cl := h.client(id)
	token, err := cl.Token()
	if err != nil {
		return from, err
	}
	at := cl.Base + "/" + thread.StreamName(id) + "?live=sse&offset=" + from
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return from, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return from, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		now := time.Now()
		data, is := strings.CutPrefix(lines.Text(), "data:")
		if !is {
			continue
		}
		var control struct{ StreamNextOffset string }
		if json.Unmarshal([]byte(data), &control) == nil && control.StreamNextOffset != "" {
			from = control.StreamNextOffset
			continue
		}
		var all []thread.Entry
		if json.Unmarshal([]byte(data), &all) != nil {
			var e thread.Entry
			if json.Unmarshal([]byte(data), &e) != nil {
				continue
			}
			all = []thread.Entry{e}
		}
		for _, e := range all {
			switch thread.TypeOf(e.Payload) {
			case thread.TypeDelta:
				pieces <- now.Sub(e.Received())
			case thread.TypeReactionFinished:
				ended <- true
			}
		}
	}
	return from, lines.Err()
}

// report reports the median and the 99th percentile.
func report(b *testing.B, name string, all []time.Duration) {
	if len(all) == 0 {
		b.Fatalf("no figures of %s", name)
	}
	slices.Sort(all)
	ms := func(q int) float64 { return all[(len(all)-1)*q/100].Seconds() * 1000 }
	b.ReportMetric(ms(50), "ms-"+name+"-p50")
	b.ReportMetric(ms(99), "ms-"+name+"-p99")
}
