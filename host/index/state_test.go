package index_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/index"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// signalled returns an entry with a signal of a run.
func signalled(run, suffix, typ, more string) thread.Entry {
	return thread.Entry{
		ID: run + "." + suffix, TS: "2026-01-01T00:00:00.000Z",
		Payload: fmt.Appendf(nil, `{"type":%q,"runId":%q,"harness":"pi"%s}`, typ, run, more),
	}
}

// status returns an entry with a run's status.
func status(run, suffix, word string) thread.Entry {
	return signalled(run, suffix, thread.TypeStatus, `,"status":"`+word+`"`)
}

// prompt returns a run's prompt.
func prompt(run, text string) thread.Entry {
	return thread.Entry{
		ID: run + ".prompt", TS: "2026-01-01T00:00:00.000Z",
		Payload: thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text, RunID: run}),
	}
}

// runsOf returns the thread of a recorded session: a run that fails to the host and ends, and one that is still open.
func runsOf(t testing.TB, name string, content []byte) (entries []thread.Entry) {
	t.Helper()
	entries = append(
		entries,
		prompt("r1", "\n\t\x1b[31mDo "+name+"\u202e now\nand more"),
		status("r1", "running", "running"),
		signalled(
			"r1",
			"sandbox",
			thread.TypeSandbox,
			`,"sandbox":{"provider":"local","ref":"b1"},"parent":{"threadId":"p"}`,
		),
		signalled("r1", "started", thread.TypeStarted, `,"pid":7,"cwd":"/w","resume":"none"`),
	)
	enc := mirror.Encoder{
		Namer: mirror.Namer{Dialect: recorded.Dialect(t, name), Session: "s1"}, Redact: &redact.Redactor{},
		Prompt: "r1.prompt",
	}
	i := -1
	for line := range bytes.Lines(content) {
		i++
		line := session.Line{Start: session.Position{Index: i}, Data: bytes.TrimSpace(line)}
		if e, ok := enc.Encode(line); ok {
			entries = append(entries, e)
		}
		if i%5 == 0 {
			entries = append(
				entries,
				signalled("r1", fmt.Sprint("beat.", i), thread.TypeHeartbeat, `,"beat":1,"nextMs":5000`),
			)
		}
	}
	return append(
		entries,
		signalled("r1", "waiting.0", "signal.dispatch.pi_waiting", `,"turn":1`),
		signalled("r1", "orphan.0", thread.TypeOrphaned, `,"reason":"silent"`),
		status("r1", "orphan.1", "failed"),
		signalled("r1", "end.0", thread.TypeFailed, `,"errorClass":"oom"`),
		status("r1", "end.1", "failed"),
		prompt("r2", "again"),
		status("r2", "running", "running"),
		signalled("r2", "beat.0", thread.TypeHeartbeat, `,"beat":1,"nextMs":60000`),
		signalled("r2", "waiting.0", "signal.dispatch.pi_waiting", `,"turn":1`),
		thread.Entry{
			ID:      "odd",
			TS:      "2026-01-01T00:00:00.000Z",
			Payload: []byte(`{"type":"pi.assistant","usage":{"input":1e3,"cost":{"total":0.1}}}`),
		},
		signalled("r2", "end.0", thread.TypeStatus, `,"status":"completed"`),
	)
}

// The state of all recorded runs can be stored and taken up again at every prefix, and is the fold of the whole.
func TestStateAtEveryPrefix(t *testing.T) {
	for name, content := range recorded.Sessions(t, "../../testdata") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var whole, resumed index.State
			var fold thread.Fold
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i, e := range runsOf(t, name, content) {
				at = at.Add(time.Second)
				r := engine.Record{Seq: uint64(i + 1), At: at, Data: e.AppendJSON(nil)}
				e.At = thread.Stamp(at)
				fold.Add(e)
				whole.Add(r)
				resumed.Add(r)
				stored, err := resumed.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				next, err := index.UnmarshalState(stored)
				if err != nil {
					t.Fatal(err)
				}
				resumed = *next
				want, got := whole.Summary("x"), resumed.Summary("x")
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("after entry %d, %s: %s", i, e.ID, d)
				}
				run, _ := fold.Latest()
				if got.Status != fold.Status() || got.Run != run.ID || got.Harness != run.Harness ||
					got.LastEntryAt != e.At {
					t.Fatalf("after entry %d, %s: %+v, and the fold has %s, %+v", i, e.ID, got, fold.Status(), run)
				}
			}
			v := resumed.Summary("x")
			if !strings.HasPrefix(v.Title, "[31mDo "+name) || v.Title != "[31mDo "+name+" now" || v.Lines < 3 ||
				v.Status != thread.StatusCompleted || v.Waiting || v.EndedAt == "" ||
				v.NextMs != 60000 || v.Cost == nil {
				t.Errorf("got %+v", v)
			}
		})
	}
}

func TestTitle(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		" \n\r\n  a  b \nc":         "a  b",
		"\x00\x07bell\u200bs\u2066": "bells",
		"a\tb":                      "a b",
		"\xffx":                     "x",
		strings.Repeat("é", 500):    strings.Repeat("é", 119) + "…",
		strings.Repeat("\n", 1e5):   "",
	} {
		if got := index.Title(text); got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}

// A live run waits from its signal on until its next line, and a heartbeat is no line.
func TestWaiting(t *testing.T) {
	var s index.State
	add := func(e thread.Entry, want bool) {
		t.Helper()
		s.Add(engine.Record{At: time.UnixMilli(1e12), Data: e.AppendJSON(nil)})
		if got := s.Summary("x").Waiting; got != want {
			t.Errorf("after %s: waiting %v", e.ID, got)
		}
	}
	line := func(id string) thread.Entry {
		return thread.Entry{
			ID:      id,
			TS:      "2026-01-01T00:00:00.000Z",
			Payload: []byte(`{"type":"pi.assistant","model":"m"}`),
		}
	}
	add(status("r1", "running", "running"), false)
	add(line("1"), false)
	add(signalled("r1", "waiting.0", "signal.dispatch.pi_waiting", ""), true)
	add(signalled("r1", "beat.0", thread.TypeHeartbeat, `,"nextMs":1`), true)
	add(signalled("r0", "waiting.9", "signal.dispatch.pi_waiting", ""), true)
	add(thread.Entry{ID: "c", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(`{"type":"chat","text":"x"}`)}, true)
	add(thread.Entry{
		ID: "x_1.0", TS: "2026-01-01T00:00:00.000Z",
		Payload: []byte(`{"type":"pi.assistant","model":"of the bot","usage":{"input":7},"reaction":{"id":"x_1"}}`),
	}, true)
	if got := s.Summary("x"); got.Lines != 1 || got.Model != "m" || got.Usage.Input != 7 {
		t.Errorf("a bot's reply is a line of the run, or its usage is left out: %+v", got)
	}
	add(line("2"), false)
	add(signalled("r1", "waiting.1", "signal.dispatch.pi_waiting", ""), true)
	add(status("r1", "end.0", "completed"), false)
	add(signalled("r1", "waiting.2", "signal.dispatch.pi_waiting", ""), false)
}

// A summary counts the chats that no run has had, as thread.Pending has them, and has since when an agent waits.
func TestPending(t *testing.T) {
	for name, tt := range map[string]struct {
		entries []string // payloads; the ids are e0, e1 …
		pending int
		waiting string // id of the entry since which it waits
	}{
		"none":    {[]string{`{"type":"pi.assistant","session":{"id":"s"}}`}, 0, ""},
		"a chat":  {[]string{`{"type":"chat","text":"x"}`}, 1, ""},
		"no text": {[]string{`{"type":"chat","text":" "}`, `{"type":"chat"}`}, 0, ""},
		"blank in escapes, and a session without members": {
			[]string{`{"type":"chat","text":"\n\t\u0020"}`, `{"type":"chat","text":"x","session":{}}`}, 0, "",
		},
		"a text that is not ASCII, one in escapes, an image": {
			[]string{
				`{"type":"chat","text":"é"}`, `{"type":"chat","text":" \u0078"}`,
				`{"type":"chat","text":"","message":{"content":[{"type":"image","mimeType":"image/png","data":"AA"}]}}`,
			}, 3, "",
		},
		"a prompt, and a turn": {
			[]string{`{"type":"chat","text":"x","runId":"r1"}`, `{"type":"chat","text":"x","session":{"id":"s"}}`}, 0, "",
		},
		"the prompt of a run that died": {[]string{
			`{"type":"chat","text":"x"}`, prompt1, `{"type":"signal.thread.pi_failed","runId":"r1"}`,
		}, 2, ""},
		"the prompt of a run that had it": {[]string{
			prompt1, line(`"kind":"prompt","chat":"r1.prompt"`), `{"type":"signal.thread.pi_failed","runId":"r1"}`,
		}, 0, ""},
		"the prompt of a run that works": {[]string{prompt1, started}, 0, ""},
		"delivered":                      {[]string{`{"type":"chat","text":"x"}`, line(`"kind":"prompt","chat":"e0"`)}, 0, ""},
		"another delivered":              {[]string{`{"type":"chat","text":"x"}`, line(`"kind":"prompt","chat":"r1.prompt"`)}, 1, ""},
		"a stub delivers it":             {[]string{`{"type":"chat","text":"x"}`, line(`"kind":"stub","chat":"e0"`)}, 0, ""},
		"another line":                   {[]string{`{"type":"chat","text":"x"}`, line(`"kind":"user","chat":"e0"`)}, 1, ""},
		"together": {[]string{
			`{"type":"chat","text":"x"}`, `{"type":"chat","text":"y"}`, `{"type":"chat","text":"z"}`,
			line(`"kind":"prompt","chats":["e0","e2","r1.prompt"]`),
		}, 1, ""},
		"refused": {[]string{
			`{"type":"chat","text":"x"}`, `{"type":"chat","text":"y"}`,
			`{"type":"signal.dispatch.chat_refused","runId":"r1","chat":"e1","reason":"too long"}`,
		}, 1, ""},
		"answered by a bot": {[]string{
			`{"type":"chat","text":"x"}`, `{"type":"chat","text":"y"}`,
			`{"type":"pi.assistant","reaction":{"id":"x_1"},"chats":["e1"]}`,
		}, 1, ""},
		"answered by another mirror": {
			[]string{`{"type":"chat","text":"x"}`, `{"type":"chat","text":"x"}`, `{"type":"pi.assistant"}`}, 0, "",
		},
		"many": {slices.Repeat([]string{`{"type":"chat","text":"x"}`}, 250), 250, ""},
		"many, and some delivered": {append(slices.Repeat([]string{`{"type":"chat","text":"x"}`}, 250),
			line(`"kind":"prompt","chats":["e0","e1","e249","r1.prompt"]`)), 247, ""},
		"waiting": {[]string{started, waits, beat}, 0, "e1"},
		"lines behind a turn": {[]string{
			started, waits, line(`"kind":"cost-state"`),
			`{"type":"pi.assistant","session":{"id":"sub"},"subagentOf":"s"}`,
		}, 0, "e1"},
		"waiting again":        {[]string{started, waits, line(`"kind":"prompt","chat":"x"`), waits}, 0, "e3"},
		"it has the chat":      {[]string{started, waits, line(`"kind":"prompt","chat":"x"`)}, 0, ""},
		"a turn that it opens": {[]string{started, waits, line(`"kind":"user"`)}, 0, ""},
		"a reply":              {[]string{started, waits, `{"type":"pi.assistant","session":{"id":"s"}}`}, 0, ""},
		"a turn ends, and the next one begins": {[]string{
			started, `{"type":"signal.dispatch.pi_waiting","runId":"r1","pending":1}`,
		}, 0, ""},
		"ended": {[]string{
			started, waits, `{"type":"signal.thread.status_changed","runId":"r1","status":"completed"}`,
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s index.State
			var whole thread.Pending
			since := ""
			for i, payload := range tt.entries {
				e := thread.Entry{
					ID: fmt.Sprint("e", i), TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload),
				}
				switch payload {
				case started:
					e.ID = "r1.started"
				case prompt1:
					e.ID = "r1.prompt"
				}
				at := time.UnixMilli(1e12 + int64(i))
				s.Add(engine.Record{At: at, Data: e.AppendJSON(nil)})
				whole.Add(e)
				if e.ID == tt.waiting {
					since = thread.Stamp(at)
				}
				b, err := s.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				next, err := index.UnmarshalState(b)
				if err != nil {
					t.Fatal(err)
				}
				s = *next
			}
			v := s.Summary("x")
			if v.Pending != tt.pending || len(whole.Chats()) != tt.pending {
				t.Errorf("%d are pending, and by thread.Pending %d; want %d", v.Pending, len(whole.Chats()), tt.pending)
			}
			if v.Live != slices.Contains(tt.entries, started) && name != "ended" || name == "ended" && v.Live {
				t.Errorf("live: %v", v.Live)
			}
			if v.Waiting != (since != "") || v.WaitingAt != since {
				t.Errorf("waiting %v since %q, want %q", v.Waiting, v.WaitingAt, since)
			}
		})
	}
}

const (
	started = `{"type":"signal.dispatch.session_started","runId":"r1","live":true}`
	waits   = `{"type":"signal.dispatch.pi_waiting","runId":"r1"}`
	beat    = `{"type":"signal.dispatch.heartbeat","runId":"r1","nextMs":60000}`
	prompt1 = `{"type":"chat","text":"task","runId":"r1"}`
)

// line is the payload of a mirrored line that is no turn.
func line(members string) string { return `{"type":"pi.session","session":{"id":"s"},` + members + `}` }

// BenchmarkStateAdd folds records of 1 KB: a tool's result, a reply and a heartbeat.
func BenchmarkStateAdd(b *testing.B) {
	text := strings.Repeat("a tool's output. ", 55)
	for name, payload := range map[string]string{
		"result": `{"type":"pi.tool_result","toolCallId":"c1","toolName":"bash","isError":false,"message":{"role":"tool",` +
			`"content":[{"type":"text","text":"` + text + `"}]},"session":{"id":"s1","entry":"e1","parent":"e0","index":7}}`,
		"reply": `{"type":"pi.assistant","stopReason":"stop","provider":"p","model":"m","usage":{"input":1,"output":2,` +
			`"totalTokens":3,"cost":{"total":0.01}},"message":{"role":"assistant","content":[{"type":"text","text":"` +
			text + `"}]},"session":{"id":"s1","entry":"e1","parent":"e0","index":7}}`,
		"beat": `{"type":"signal.dispatch.heartbeat","runId":"r1","harness":"pi","beat":1,"posted":5,"pending":0,` +
			`"uptimeMs":1000,"nextMs":5000,"agent":{"pid":7,"rssBytes":1,"cpuMs":1,"quietMs":0}}`,
	} {
		b.Run(name, func(b *testing.B) {
			e := thread.Entry{ID: "pi:s1:e1", TS: "2026-01-01T00:00:00.000Z", Payload: []byte(payload)}
			r := engine.Record{At: time.Now(), Data: e.AppendJSON(nil)}
			var s index.State
			b.ReportAllocs()
			for b.Loop() {
				s.Add(r)
			}
		})
	}
}
