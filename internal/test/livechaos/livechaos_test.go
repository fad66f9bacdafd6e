package livechaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

var harnesses = []string{"claude-code", "codex", "pi"}

// The same seed makes the same schedule, and schedules in succession have each harness with each kind of fault.
func TestMake(t *testing.T) {
	seen := map[string]bool{}
	delivers, clears := map[string]int{}, 0
	for seed := range uint64(15) {
		s := Make(seed, harnesses)
		if !reflect.DeepEqual(s, Make(seed, harnesses)) {
			t.Errorf("seed %d makes two schedules", seed)
		}
		seen[s.Harness+" "+string(s.Kind)] = true
		if len(s.Chats) != Chats || len(s.Strikes) == 0 {
			t.Errorf("%s has %d chats and %d strikes", s, len(s.Chats), len(s.Strikes))
		}
		if !slices.IsSortedFunc(s.Strikes, func(a, b Strike) int { return a.Chat - b.Chat }) {
			t.Errorf("%s: the strikes are not in order", s)
		}
		for i, c := range s.Chats {
			delivers[c.Deliver]++
			if c.Clears() {
				if clears++; s.Harness != "claude-code" || i == Chats-1 {
					t.Errorf("%s: chat %d clears", s, i)
				}
			}
			for j, other := range s.Chats {
				if i != j && strings.Contains(other.Text, key(c.Text)) {
					t.Errorf("%s: chat %d has the key of chat %d", s, j, i)
				}
			}
			if len(c.Text) > 75<<10 {
				t.Errorf("%s: chat %d has %d bytes", s, i, len(c.Text))
			}
		}
	}
	if len(seen) != 15 || len(delivers) != 3 || clears == 0 {
		t.Errorf("seen %v, %v, %d clears", seen, delivers, clears)
	}
}

// world is a thread, a file and a request as a schedule with three chats leaves them.
type world struct {
	result Result
	index  int
}

func (w *world) post(id, payload string) {
	w.result.Thread = append(w.result.Thread, thread.Entry{
		ID: id, TS: "2026-01-01T12:00:00.000Z", Payload: json.RawMessage(payload),
	})
}

// deliver puts chats into the file, the request and the thread.
func (w *world) deliver(chats ...int) {
	w.onThread(chats...)
	w.inFile(chats...)
	w.asked(chats...)
}

func (w *world) onThread(chats ...int) {
	for _, i := range chats {
		w.index++
		w.post(fmt.Sprint("pi:s:", w.index), fmt.Sprintf(
			`{"type":"pi.session","kind":"prompt","chat":"c%d","session":{"id":"s","entry":"%d","parent":null,"index":%[2]d}}`,
			i, w.index))
	}
}

func (w *world) inFile(chats ...int) {
	for _, i := range chats {
		w.result.File = append(w.result.File, thread.Marshal(map[string]any{
			"type": "message", "id": fmt.Sprint(len(w.result.File)), "timestamp": "2026-01-01T12:00:00.000Z",
			"message": map[string]any{"role": "user", "content": []any{
				map[string]string{"type": "text", "text": w.result.Chats[i].Text},
			}},
		})...)
		w.result.File = append(w.result.File, '\n')
	}
}

func (w *world) asked(chats ...int) {
	var all []string
	_ = json.Unmarshal(w.result.Request, &all) // nothing yet
	for _, i := range chats {
		all = append(all, w.result.Chats[i].Text)
	}
	w.result.Request = thread.Marshal(all)
}

// Check finds what is broken, and nothing else.
func TestCheck(t *testing.T) {
	const end = `{"type":"signal.thread.status_changed","runId":"r1","status":"completed"}`
	const steer, later, at = thread.DeliverSteer, thread.DeliverFollowUp, thread.DeliverInterrupt
	for _, tt := range []struct {
		name    string
		deliver [3]string
		play    func(w *world)
		want    []string
	}{
		{"all once and in order", [3]string{}, func(w *world) { w.deliver(0, 1, 2) }, nil},
		{"one is pending", [3]string{}, func(w *world) { w.deliver(0, 1) }, nil},
		{"together", [3]string{}, func(w *world) {
			w.post("pi:s:1", `{"type":"pi.session","kind":"prompt","chats":["c0","c1","c2","r1.prompt"],"session":{"id":"s"}}`)
			w.inFile(0, 1, 2)
			w.asked(0, 1, 2)
		}, nil},
		{"an interrupt overtakes", [3]string{steer, steer, at}, func(w *world) { w.deliver(0, 2, 1) }, nil},
		{"what is for now overtakes", [3]string{later, steer, later}, func(w *world) { w.deliver(1, 0, 2) }, nil},
		{"a chat overtakes", [3]string{}, func(w *world) { w.deliver(0, 2, 1) }, []string{"chat 2 came before chat 1"}},
		{
			"one for after the turn overtakes",
			[3]string{steer, later, steer},
			func(w *world) { w.deliver(1, 0, 2) },
			[]string{"chat 1 came before chat 0"},
		},
		{
			"twice", [3]string{}, func(w *world) { w.deliver(0, 1, 2, 1) }, []string{
				"chat 1 is delivered 2 times on the thread",
				"chat 1 is 2 times in the session's file, and 2 times on the thread",
				"the model was told chat 1 2 times, and the thread has it 2 times", "chat 2 came before chat 1",
			},
		},
		{
			"twice in the file and on the thread once",
			[3]string{},
			func(w *world) { w.deliver(0, 1, 2); w.inFile(1) },
			[]string{"chat 1 is 2 times in the session's file, and 1 times on the thread"},
		},
		{
			"not in the file",
			[3]string{},
			func(w *world) { w.deliver(0, 1); w.onThread(2); w.asked(2) },
			[]string{"chat 2 is 0 times in the session's file, and 1 times on the thread"},
		},
		{
			"not on the thread",
			[3]string{},
			func(w *world) { w.deliver(0, 1); w.inFile(2); w.asked(2) },
			[]string{
				"chat 2 is 1 times in the session's file, and 0 times on the thread",
				"the model was told chat 2 1 times, and the thread has it 0 times",
			},
		},
		{
			"the model does not have it",
			[3]string{},
			func(w *world) { w.deliver(0, 1); w.onThread(2); w.inFile(2) },
			[]string{"the model was told chat 2 0 times, and the thread has it 1 times"},
		},
		{
			"lost",
			[3]string{},
			func(w *world) {
				w.deliver(0, 1)
				w.post("r1.refused.0", `{"type":"signal.dispatch.chat_refused","runId":"r1","chat":"c2"}`)
			},
			[]string{"chat 2 is neither delivered nor pending"},
		},
		{
			"a second chat", [3]string{}, func(w *world) {
				w.deliver(0, 1, 2)
				w.post("pi:s:x", `{"type":"chat","text":"chat-1-01.","session":{"id":"s"}}`)
			}, []string{"pi:s:x is a second chat"},
		},
		{"a run goes on", [3]string{}, func(w *world) {
			w.deliver(0, 1, 2)
			w.post("r2.running", `{"type":"signal.thread.status_changed","runId":"r2","status":"running"}`)
		}, []string{"run r2 has no end"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := world{result: Result{Dialect: session.Pi}}
			w.post("r1.running", `{"type":"signal.thread.status_changed","runId":"r1","status":"running"}`)
			for i, deliver := range tt.deliver {
				c := Chat{Deliver: deliver, Text: fmt.Sprintf("chat-1-%02d.\nand more", i)}
				w.result.Chats = append(w.result.Chats, c)
				w.result.IDs = append(w.result.IDs, fmt.Sprint("c", i))
				w.post(fmt.Sprint("c", i), `{"type":"chat","text":"`+key(c.Text)+`"}`)
			}
			tt.play(&w)
			w.post("r1.end.0", end)
			if got := w.result.Check(); !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// At a clear the model forgets what came before it.
func TestCheckClear(t *testing.T) {
	w := world{result: Result{Dialect: session.Claude, Schedule: Schedule{Chats: []Chat{
		{Text: "chat-1-00."}, {Text: "/clear chat-1-01."}, {Text: "chat-1-02."},
	}}}}
	for i, c := range w.result.Chats {
		w.result.IDs = append(w.result.IDs, fmt.Sprint("c", i))
		text, _ := json.Marshal(c.Text)
		if c.Clears() {
			text = []byte(`"<command-name>/clear</command-name> <command-args>chat-1-01.</command-args>"`)
		}
		w.result.File = fmt.Appendf(w.result.File, `{"type":"user","message":{"content":%s},"uuid":"%d"}`+"\n", text, i)
	}
	w.onThread(0, 1, 2)
	w.asked(2)
	if got := w.result.Check(); got != nil {
		t.Errorf("got %q", got)
	}
	w.asked(0)
	if got := w.result.Check(); !slices.Equal(got, []string{"the model was told chat 0, which came before a clear"}) {
		t.Errorf("got %q", got)
	}
	w.result.Request = nil
	want := []string{"the model was told chat 2 0 times, and the thread has it 1 times"}
	if got := w.result.Check(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// What claude-code takes in during a turn stands in an attachment, beside what it notes of its queue.
func TestCheckClaude(t *testing.T) {
	r := Result{Dialect: session.Claude, Schedule: Schedule{Chats: []Chat{{Text: "chat-1-00."}, {Text: "chat-1-01."}}}}
	for _, line := range []string{
		`{"type":"queue-operation","operation":"enqueue","content":"chat-1-00."}`,
		`{"type":"attachment","attachment":{"type":"queued_command","prompt":[{"text":"chat-1-00.","type":"text"}]},"uuid":"a"}`,
		`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"chat-1-01."}]},"uuid":"b"}`,
		`{"type":"last-prompt","lastPrompt":"chat-1-01."}`,
	} {
		r.File = append(append(r.File, line...), '\n')
	}
	if got := r.inFile(); got[0] != 1 || got[1] != 1 || bytes.Count(r.File, []byte("chat-1-00.")) != 2 {
		t.Errorf("got %v", got)
	}
}
