package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/thread"
)

// shown has what a reader shows of a bot's answer while it comes.
type shown struct {
	claim int
	text  string   // of the open round
	whole []string // rounds, as they are on the thread
	began int      // how often the text of a round began anew
	over  bool
}

// add adds an entry. Text that does not follow the text before it is an error.
func (s *shown) add(t *testing.T, e thread.Entry) {
	t.Helper()
	var p struct {
		Type    string
		Claim   int
		From    int
		Text    string
		Message struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	switch p.Type {
	case thread.TypeReactionClaimed:
		s.claim = p.Claim
	case thread.TypeDelta:
		if p.From == 0 {
			s.text = ""
			s.began++
		}
		if n := utf8.RuneCountInString(s.text); n != p.From {
			t.Errorf("%s is behind %d characters, want %d", e.ID, n, p.From)
		}
		s.text += p.Text
	case thread.TypeRound:
		if !strings.HasPrefix(p.Message.Content[0].Text, s.text) || s.text == "" {
			t.Errorf("%q came, and the reply is %q", s.text, p.Message.Content[0].Text)
		}
		s.whole, s.text = append(s.whole, p.Message.Content[0].Text), ""
	case thread.TypeReactionFinished:
		s.over = true
	}
}

// follow reads events from an offset on, at most so many, until the answer is over. It returns the offset behind them.
func (s *shown) follow(t *testing.T, base, token, offset string, events int) (next string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := listen(t, ctx, base+"/arbe-thread-t1?live=sse&offset="+offset, token)
	defer r.resp.Body.Close()
	for kind := ""; events > 0 && r.lines.Scan(); {
		name, value, _ := strings.Cut(r.lines.Text(), ":")
		switch {
		case name == "event":
			kind = strings.TrimSpace(value)
		case name == "data" && kind == "data":
			var entries []thread.Entry
			if err := json.Unmarshal([]byte(value), &entries); err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				s.add(t, e)
			}
		case name == "data" && kind == "control":
			var c struct{ StreamNextOffset string }
			if err := json.Unmarshal([]byte(value), &c); err != nil {
				t.Fatal(err)
			}
			if offset = c.StreamNextOffset; s.over {
				return offset
			}
			events--
		}
	}
	return offset
}

// A bot's text, posted to one of two servers on NATS, reaches readers of both whole and in order: also one that comes
// again after each few events, now here and now there, and one that comes first in mid-round. Its holder changes.
func TestDeltasOnTwoServers(t *testing.T) {
	open := natsCluster(t)
	bases := []string{
		serveOn(t, open(t), func(*server.Server) {}) + "/api/stream",
		serveOn(t, open(t), func(*server.Server) {}) + "/api/stream",
	}
	token, b := writer(t, "t1"), newBot("piet")
	post := func(entries ...thread.Entry) {
		a := call{
			method: "POST", path: "/arbe-thread-t1", token: token, body: string(thread.Marshal(entries)),
		}.do(t, bases[0])
		if a.status != 200 {
			t.Errorf("got %+v", a)
		}
	}
	post(chatEntry("c1"), b.claim(0))

	const rounds, pieces = 3, 40
	read := map[string]*shown{}
	done := make(chan bool, 4)
	for name, offset := range map[string]string{"of the first server": "0", "of the second server": "0"} {
		s := &shown{}
		read[name] = s
		base := bases[len(read)-1]
		go func() {
			defer func() { done <- true }()
			for !s.over {
				offset = s.follow(t, base, token, offset, 1<<30)
			}
		}()
	}
	restless := &shown{}
	read["that comes again"] = restless
	go func() {
		defer func() { done <- true }()
		offset := "0"
		for i := 0; !restless.over; i++ {
			offset = restless.follow(t, bases[i%2], token, offset, 1+i%4)
		}
	}()
	text := func(round, k, i int) string { return fmt.Sprintf("%d.%d.%d größer, ", round, k, i) }
	late := &shown{}
	for round := range rounds {
		k, whole := 0, ""
		from := 0
		delta := func(k, i int) {
			piece := text(round, k, i)
			e := b.delta(round, k, i, piece)
			p := thread.Delta{
				Type: thread.TypeDelta, Reaction: thread.InReaction{ID: b.x, Round: round}, From: from, Text: piece,
			}
			e.Payload = thread.Marshal(p)
			post(e)
			whole, from = whole+piece, from+utf8.RuneCountInString(piece)
		}
		if round == rounds-1 {
			k = 2
		}
		for i := range pieces {
			if round == 1 && i == pieces/2 { // another host takes over, and asks the model anew
				k, whole, from = 2, "", 0
				post(b.claim(1), b.claim(2))
			}
			delta(k, i)
			if round == 1 && i == pieces/4 {
				go func() { // it begins in mid-round, with all of the text so far
					defer func() { done <- true }()
					offset := "0"
					for !late.over {
						offset = late.follow(t, bases[1], token, offset, 3)
					}
				}()
			}
		}
		e := b.round(round)
		e.Payload = thread.Marshal(thread.Round{
			Type: thread.TypeRound, Reaction: thread.InReaction{ID: b.x, Round: round},
			Message: fmt.Appendf(nil, `{"role":"assistant","content":[{"type":"text","text":%q}]}`, whole+"."),
		})
		if round < rounds-1 {
			post(e)
			continue
		}
		post(e, b.end())
	}
	for range 4 {
		<-done
	}
	read["that began in mid-round"] = late
	for name, s := range read {
		if len(s.whole) != rounds || s.began != rounds+1 || s.claim != 2 {
			t.Errorf("the reader %s has %d replies, %d beginnings, claim %d", name, len(s.whole), s.began, s.claim)
		}
		for i, reply := range s.whole {
			if i < len(restless.whole) && reply != restless.whole[i] {
				t.Errorf("the reader %s: reply %d is %q, want %q", name, i, reply, restless.whole[i])
			}
		}
	}
}
