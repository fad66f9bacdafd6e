package dispatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/price"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/thread"
)

var update = flag.Bool("update", false, "write testdata/threads/answered.ndjson")

// stored is a thread of a log.
type stored struct {
	log  *log.Log
	id   string
	grew chan<- string
}

func (s stored) Read(ctx context.Context, from string, f func(thread.Entry)) (string, time.Time, error) {
	after, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return from, time.Time{}, err
	}
	v, err := s.log.Stat(ctx, thread.StreamName(s.id))
	if err != nil {
		return from, time.Time{}, err
	}
	for after < v.Tail() {
		records, err := s.log.Read(ctx, v, after, v.Tail(), 1<<20)
		if err != nil {
			return from, time.Time{}, err
		}
		for _, r := range records {
			e, err := thread.ParseStored(r.Data)
			if err != nil {
				return from, time.Time{}, err
			}
			e.At, after = thread.Stamp(r.At), r.Seq
			f(e)
		}
	}
	return fmt.Sprintf("%020d", after), time.Now(), nil
}

func (s stored) Append(ctx context.Context, entries ...thread.Entry) error {
	_, err := s.log.Append(ctx, s.id, entries)
	if errors.As(err, new(*log.ConflictError)) {
		return dispatch.ErrTaken
	}
	select {
	case s.grew <- s.id:
	case <-ctx.Done():
	}
	return err
}

func runCommand(ctx context.Context, _ dispatch.ToolCall) (dispatch.ToolResult, error) {
	select {
	case <-time.After(7 * time.Second):
		return dispatch.ToolResult{Text: "exit 0, 7 s\nok  ./...  6.8s"}, nil
	case <-ctx.Done():
		return dispatch.ToolResult{}, ctx.Err()
	}
}

// replies plays the model of the recorded thread.
func replies(ctx context.Context, n int, _ model.Request, f func(model.Event)) (r model.Reply, err error) {
	say := func(events ...model.Event) {
		for _, e := range events {
			time.Sleep(300 * time.Millisecond)
			f(e)
		}
		time.Sleep(600 * time.Millisecond)
	}
	r.Model = "claude-scripted"
	switch n {
	case 0:
		say(model.Event{Text: "I will "}, model.Event{Text: "run them."}, model.Event{Tool: "run_command"})
		r.Parts = []model.Part{{Text: "I will run them."}, {Call: &model.Call{
			ID: "call_0", Name: "run_command", Arguments: json.RawMessage(`{"command":"time make test"}`),
		}}}
		r.Stop, r.Usage = model.StopCalls, model.Usage{Input: 812, Output: 31}
	case 1:
		say(model.Event{Text: "They take "}, model.Event{Text: "7 s."})
		r.Parts = []model.Part{{Text: "They take 7 s."}}
		r.Stop, r.Usage = model.StopEnd, model.Usage{Input: 64, Output: 9, CacheRead: 812}
	default:
		say(model.Event{Text: "Let me think about "})
		<-ctx.Done()
		return r, ctx.Err()
	}
	return r, nil
}

// TestRecordedThread holds testdata/threads/answered.ndjson, which a host of this package has made on a log: a mention
// that is answered with a call, one that is cancelled, and one of a bot that may not answer.
func TestRecordedThread(t *testing.T) {
	const id, path = "plans", "../../testdata/threads/answered.ndjson"
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 23, 12, 3, 0, 0, time.UTC)))
		grew := make(chan string, 1000)
		on := stored{newLog(t, "pebble"), id, grew}
		r := room(rows.ModeMention, rows.ModeMention, rows.ModeOff, rows.ModeMention)
		r.Prices = map[string]price.Price{
			"anthropic/claude-scripted": {Input: 3e6, Output: 15e6, CacheRead: 3e5, CacheWrite: 3_750_000},
		}
		for i := range r.Bots {
			r.Bots[i].Provider, r.Bots[i].Model = "anthropic", "claude-scripted"
			r.Bots[i].Joined = time.Date(2026, 11, 1+i, 9, 0, 0, 0, time.UTC)
		}
		api := &api{answer: replies}
		h := &dispatch.Host{
			Instance: "9c41d2f0", Reactions: 2, Log: slog.New(slog.DiscardHandler),
			Tools: []dispatch.Tool{{
				Tool: model.Tool{Name: "run_command", Schema: json.RawMessage(`{"type":"object"}`)}, Run: runCommand,
			}},
			Threads: func(string) dispatch.Thread { return on },
			Room: func(context.Context, string) (dispatch.Room, time.Time, bool, error) {
				return r, time.Time{}, true, nil
			},
			Model: func(context.Context, string, string) (model.Model, error) { return api, nil },
		}
		post := func(id, author string, payload any) {
			t.Helper()
			if err := on.Append(t.Context(), thread.NewEntry(id, author, payload)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() { h.Run(ctx, grew); close(ended) }()
		chat := func(k int, text string, mentions ...string) {
			post(fmt.Sprint("member.ann.k", k), "ann", thread.Chat{
				Type: thread.TypeChat, Text: text, Mentions: mentions,
			})
			time.Sleep(4 * time.Second)
		}
		chat(1, "@Piet how long do the tests take?", r.Bots[0].ID)
		time.Sleep(time.Minute)
		chat(2, "@Alma, what do you think?")
		post("5764de0c-854c-4d27-bab7-170c107b4242", "ann", thread.ReactionCancel{
			Type: thread.TypeReactionCancel, Reaction: thread.ReactionID(id, r.Bots[1].ID, 0), Reason: "by ann",
		})
		time.Sleep(time.Second)
		chat(3, "@Gus?")
		from := thread.ReactionID("logs", r.Bots[3].ID, 0)
		post(thread.CallKey(from, 0, 0), r.Bots[3].ID, thread.Chat{
			Type: thread.TypeChat, Text: "The logs are in /var/log/plans.",
			Via: &thread.Via{ThreadID: "logs", Reaction: from, Depth: 1, Root: &thread.Root{
				AuthorID: "ann", ThreadID: "logs", EntryID: "member.ann.k9",
			}},
		})
		time.Sleep(time.Second)
		cancel()
		<-ended
		if _, _, err := on.Read(t.Context(), "0", func(e thread.Entry) {
			fmt.Fprintf(&out, "%s\n", thread.Marshal(e))
		}); err != nil {
			t.Fatal(err)
		}
	})
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("go test ./host/dispatch -run RecordedThread -update writes it anew:\n%s", d)
	}
}
