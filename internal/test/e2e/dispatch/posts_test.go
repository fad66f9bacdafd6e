package dispatch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"arbe.0sk.ar/runner/internal/test/botchaos"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// post posts a chat of a person, until a server has it, and returns its id.
func (w *world) post(v *server, person, id, key, text string) string {
	body := thread.Marshal(map[string]any{"payload": map[string]string{"type": "chat", "text": text}})
	until(w.t, "a chat that is posted", func() bool {
		req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost,
			"http://"+v.addr+"/api/threads/"+id+"/entries", bytes.NewReader(body))
		if err != nil {
			w.t.Error(err)
			return true
		}
		req.Header.Set("Authorization", "Bearer "+w.tokens[person])
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return w.t.Context().Err() != nil
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return false
		}
		if resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests {
			w.t.Errorf("a chat on %s: %s: %s", id, resp.Status, b)
			return true
		}
		return resp.StatusCode/100 == 2
	})
	return "member." + person + "." + key
}

// talk is a schedule that is played on a thread of its own.
type talk struct {
	botchaos.Result
	client *client.Client
	next   string // offset
}

// newTalk makes the thread of a schedule.
func (w *world) newTalk(house string, s botchaos.Schedule) *talk {
	tk := w.talk(house, s)
	w.exec("insert into threads (id, stream_id, house_id, name) values ($1, $1, $2, $1)", tk.Thread, house)
	return tk
}

// talk returns a schedule to play, on a thread that has its row.
func (w *world) talk(house string, s botchaos.Schedule) *talk {
	id := fmt.Sprintf("%s-%d", house, s.Seed)
	return &talk{
		Result: botchaos.Result{Schedule: s, Thread: id, People: people},
		client: w.client(w.servers[0], id), next: "0",
	}
}

// play posts the chats of the schedule.
func (w *world) play(tk *talk) {
	for i, p := range tk.Posts {
		time.Sleep(p.After) // this is the schedule
		v := w.servers[i%len(w.servers)]
		who := people[i%len(people)]
		tk.IDs = append(tk.IDs, w.post(v, who, tk.Thread, fmt.Sprintf("%s.%d", tk.Thread, i), p.Text))
		if p.Stop {
			time.Sleep(time.Second) // this is the schedule
			w.stop(tk, who)
		}
	}
}

// stop stops a bot that is answering, if there is one, as a person does who presses Stop.
func (w *world) stop(tk *talk, who string) {
	if err := tk.read(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	open := tk.Reacting()
	if len(open) == 0 {
		return
	}
	stop := thread.ReactionCancel{Type: thread.TypeReactionCancel, Reaction: open[0]}
	if _, err := tk.client.Append(w.t.Context(), []thread.Entry{
		thread.NewEntry("stop-"+open[0], who, stop),
	}); err != nil {
		w.t.Error(err)
	}
}

// read reads what has come since the last time.
func (tk *talk) read(ctx context.Context) error {
	page, err := tk.client.Read(ctx, tk.next, false, func(e thread.Entry) error {
		tk.Entries = append(tk.Entries, e)
		return nil
	})
	if err == nil {
		tk.next = page.Next
	}
	return err
}

// settle waits until all is done on all threads.
func (w *world) settle(talks []*talk) {
	w.t.Helper()
	open := talks
	defer func() {
		for _, tk := range open {
			w.t.Logf("open: %d on %s, seed %d\n%s", tk.Open(), tk.Thread, tk.Seed, tk.text())
		}
	}()
	until(w.t, "threads on which nothing is open", func() bool {
		var still []*talk
		for _, tk := range open {
			if err := tk.read(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
			if tk.Open() > 0 {
				still = append(still, tk)
			}
		}
		open = still
		return len(open) == 0
	})
}

// judge checks all threads.
func (w *world) judge(talks []*talk, struck func(instance string) bool) (all botchaos.Tally) {
	w.t.Helper()
	of := w.model.byThread(talks)
	w.made(talks)
	for _, tk := range talks {
		tk.Struck, tk.Questions = struck, of[tk.Thread]
		wrong, n := tk.Check()
		all.Add(n)
		for _, fault := range wrong {
			w.t.Errorf("%s: %s", tk.Thread, fault)
		}
		if len(wrong) > 0 || n.GivenUp > all.GivenUp-n.GivenUp { // the first one that was given up
			w.t.Logf("seed %d, %s:\n%s", tk.Seed, tk.Thread, tk.text())
		}
	}
	return all
}

// text returns the log of the thread for people.
func (tk *talk) text() string {
	var b bytes.Buffer
	for _, e := range tk.Entries {
		fmt.Fprintf(&b, "%s %s %.300s\n", e.At, e.ID, e.Payload)
	}
	for _, q := range tk.Questions {
		fmt.Fprintf(&b, "asked: %.200v\n", q)
	}
	return b.String()
}

// parallel calls f with each number below n, many at the same time.
func parallel(n, most int, f func(i int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, most)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	all.Wait()
}
