package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// A program posts an entry and reads the thread. Each call tries again where the server does not answer, so a post may
// arrive twice: the entry's id makes that harmless.
func ExampleClient() {
	server := httptest.NewServer(&oneThread{}) // in place of arbe serve
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	cl := &client.Client{
		Base:   thread.BaseURL(server.URL), // $ARBE_STREAM_URL
		Thread: "demo",
		Token:  client.StaticToken("a token of arbe token mint --thread demo"),
	}
	note := thread.Entry{
		ID:      "note.1",
		TS:      thread.Stamp(time.Now()),
		Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: "hello"}),
	}
	ack, err := cl.Append(ctx, []thread.Entry{note})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("next offset", ack.Next)
	page, err := cl.Read(ctx, "0", false, func(e thread.Entry) error {
		fmt.Println(e.ID, string(e.Payload))
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("read on from", page.Next)
	// Output:
	// next offset 1
	// note.1 {"type":"chat","text":"hello"}
	// read on from 1
}

// Follow passes entries on as they come, until its function returns ErrStop.
func ExampleClient_Follow() {
	server := httptest.NewServer(&oneThread{})
	defer server.Close()
	cl := &client.Client{Base: thread.BaseURL(server.URL), Thread: "demo", Token: client.StaticToken("a token")}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	chat := thread.Chat{Type: thread.TypeChat, Text: "hello"}
	entry := thread.Entry{ID: "note.1", TS: thread.Stamp(time.Now()), Payload: thread.Marshal(chat)}
	if _, err := cl.Append(ctx, []thread.Entry{entry}); err != nil {
		fmt.Println(err)
		return
	}
	err := cl.Follow(ctx, "0", func(e thread.Entry) error {
		var chat thread.Chat
		if err := json.Unmarshal(e.Payload, &chat); err != nil {
			return err
		}
		fmt.Println(chat.Text)
		return client.ErrStop
	}, nil)
	fmt.Println(err)
	// Output:
	// hello
	// <nil>
}

// oneThread is a thread server with one thread in memory, and the routes that the examples need.
type oneThread struct {
	mu      sync.Mutex
	entries []string
}

func (s *oneThread) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodPost {
		s.entries = append(s.entries, string(body))
	}
	w.Header().Set("Stream-Next-Offset", fmt.Sprint(len(s.entries)))
	w.Header().Set("Stream-Up-To-Date", "true")
	if r.Method == http.MethodPost {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"nextOffset":"%d","appended":1,"duplicates":0}`, len(s.entries))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	io.WriteString(w, strings.Join(s.entries, "\n"))
}
