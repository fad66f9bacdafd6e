package thread_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

// posted is an entry "id payload".
func posted(line string) thread.Entry {
	id, payload, _ := strings.Cut(line, " ")
	return thread.Entry{ID: id, TS: "2026-06-01T12:00:00.000Z", AuthorID: "ada", Payload: json.RawMessage(payload)}
}

// pendingIDs folds entries, and each prefix of them once more from its JSON state.
func pendingIDs(t *testing.T, run string, entries []thread.Entry) string {
	t.Helper()
	whole, resumed := &thread.Pending{Run: run}, &thread.Pending{Run: run}
	for _, e := range entries {
		whole.Add(e)
		state, err := json.Marshal(resumed)
		if err != nil {
			t.Fatal(err)
		}
		next := &thread.Pending{}
		if err := json.Unmarshal(state, next); err != nil {
			t.Fatal(err)
		}
		next.Add(e)
		resumed = next
	}
	if diff := cmp.Diff(slices.Clone(whole.Chats()), slices.Clone(resumed.Chats())); diff != "" &&
		len(whole.Chats())+len(resumed.Chats()) > 0 {
		t.Errorf("resumed from its state (+), in one pass (-):\n%s", diff)
	}
	var ids []string
	for _, c := range whole.Chats() {
		ids = append(ids, c.ID)
	}
	return strings.Join(ids, " ")
}

func TestPending(t *testing.T) {
	const (
		a      = `a {"type":"chat","text":"one"}`
		b      = `b {"type":"chat","text":"two"}`
		c      = `c {"type":"chat","text":"three"}`
		prompt = `r1.prompt {"type":"chat","text":"task","runId":"r1"}`
		place  = `"session":{"id":"s","entry":null,"parent":null,"index":1}`
	)
	names := func(members string) string {
		return `pi:s:1 {"type":"pi.session","kind":"prompt",` + members + `,` + place + `,"line":{}}`
	}
	ended := func(run, status string) string {
		return run + `.` + status + ` {"type":"signal.thread.status_changed","status":"` + status + `","runId":"` + run + `"}`
	}
	for _, tt := range []struct {
		name, run string
		entries   []string
		want      string
	}{
		{"empty", "", nil, ""},
		{"in the thread's order", "", []string{b, a, c}, "b a c"},
		{"a prompt", "", []string{prompt, a}, "a"},
		{"the prompt of the run", "r1", []string{a, prompt}, "a r1.prompt"},
		{"the prompt of another run", "r2", []string{prompt}, ""},
		{"a prompt without a run", "r2", []string{`r1.prompt {"type":"chat","text":"task"}`}, ""},
		{"a note of a run", "", []string{`x {"type":"chat","text":"t","runId":"r1"}`}, ""},
		{"a mirrored line", "", []string{`pi:s:2 {"type":"chat","text":"typed",` + place + `}`}, ""},
		{"one delivered", "", []string{a, b, names(`"chat":"a"`)}, "b"},
		{"several delivered", "", []string{a, b, c, names(`"chats":["a","c"]`)}, "b"},
		{"with the prompt", "", []string{a, prompt, names(`"chats":["a","r1.prompt"]`), b}, "b"},
		{"the prompt alone", "", []string{a, prompt, names(`"chat":"r1.prompt"`)}, "a"},
		{"answered by a bot", "", []string{
			a, b, `x_1.0 {"type":"pi.assistant","reaction":{"id":"x_1","round":0,"depth":0},"chats":["a"]}`,
		}, "b"},
		{"a bot's round with calls", "", []string{a, `x_1.0 {"type":"pi.assistant","reaction":{"id":"x_1"}}`}, "a"},
		{"a bot's claim", "", []string{
			a, `x_1.claim.0 {"type":"signal.dispatch.reaction_claimed","reaction":"x_1","chats":["a"]}`,
		}, "a"},
		{"delivered, and the line cut", "", []string{
			a, b, `codex:s:1 {"type":"codex.session","kind":"stub","chats":["a","b"],"truncated":true,` + place + `}`,
		}, ""},
		{"another kind of line", "", []string{
			a, `pi:s:1 {"type":"pi.session","kind":"label","chat":"a",` + place + `}`,
		}, "a"},
		{"refused", "", []string{a, b, `r1.refused.0 {"type":"signal.dispatch.chat_refused","chat":"a"}`}, "b"},
		{"a reply of a run", "", []string{a, `pi:s:3 {"type":"pi.assistant","message":{},` + place + `}`}, "a"},
		{"a reply that another mirror wrote", "", []string{a, b, `z {"type":"pi.assistant","message":{}}`, c}, "c"},
		{"a subagent's reply", "", []string{a, `z {"type":"claude.assistant","message":{},"subagentOf":"s"}`}, "a"},
		{"the end of a run", "", []string{
			a, `r1.end.0 {"type":"signal.thread.status_changed","status":"completed","runId":"r1"}`,
		}, "a"},
		{"a child's result", "", []string{
			`t2.r2.finished {"type":"signal.thread.child_finished","childThreadId":"t2"}`,
			`t2.r2.result {"type":"chat","text":"The task on thread t2 has completed."}`,
		}, "t2.r2.result"},
		{"without content", "", []string{
			`e {"type":"chat","text":" \n"}`, `f {"type":"chat"}`, `g {"type":"chat","text":7}`,
		}, ""},
		{"delivered twice", "", []string{a, names(`"chat":"a"`), names(`"chat":"a"`), b}, "b"},
		// A prompt waits where its run is over, and no session has it.
		{"the prompt of a run that failed", "", []string{a, prompt, b, ended("r1", "failed")}, "a r1.prompt b"},
		{"of one that was cancelled", "", []string{prompt, ended("r1", "cancelled")}, "r1.prompt"},
		{"of one without a launch", "", []string{prompt, `r1.orphan.0 {"type":"signal.thread.pi_failed","runId":"r1"}`}, "r1.prompt"},
		{"of one that was lost", "", []string{prompt, `x {"type":"signal.thread.pi_session_orphaned","runId":"r1"}`}, "r1.prompt"},
		{"of one that completed", "", []string{prompt, ended("r1", "completed")}, ""},
		{"of one that completed after all", "", []string{prompt, ended("r1", "failed"), ended("r1", "completed")}, ""},
		{"of one that had it", "", []string{prompt, names(`"chat":"r1.prompt"`), ended("r1", "failed")}, ""},
		{"of one that had it, later", "", []string{prompt, ended("r1", "failed"), names(`"chat":"r1.prompt"`)}, ""},
		{"of one without an end", "", []string{prompt, ended("r1", "running"), ended("r2", "running")}, "r1.prompt"},
		{"of one that runs", "r2", []string{prompt, ended("r1", "running"), ended("r2", "failed")}, ""},
		{"told with another", "", []string{
			prompt, ended("r1", "failed"), `r2.prompt {"type":"chat","text":"more"}`, names(`"chats":["r1.prompt","r2.prompt"]`),
		}, ""},
		{"refused by the next run", "", []string{
			prompt, ended("r1", "failed"), `r2.refused.0 {"type":"signal.dispatch.chat_refused","chat":"r1.prompt"}`,
		}, ""},
		{"given once more", "", []string{
			prompt, ended("r1", "failed"), `r2.prompt {"type":"chat","text":"task"}`, ended("r2", "failed"),
		}, "r2.prompt"},
		{"given once more, to this run", "r2", []string{
			prompt, ended("r1", "failed"), `r2.prompt {"type":"chat","text":"task"}`,
		}, "r2.prompt"},
		{"before this run's own", "r2", []string{
			prompt, `r2.prompt {"type":"chat","text":"more"}`, ended("r2", "running"),
		}, "r1.prompt r2.prompt"},
		{"answered by another mirror", "", []string{prompt, ended("r1", "failed"), `z {"type":"pi.assistant"}`}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var entries []thread.Entry
			for _, line := range tt.entries {
				entries = append(entries, posted(line))
			}
			if got := pendingIDs(t, tt.run, entries); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestParseChat(t *testing.T) {
	const image = `{"type":"image","mimeType":"image/png","data":"AAAA"}`
	for _, tt := range []struct {
		payload string
		want    thread.PendingChat
	}{
		{`{"type":"chat","text":"t"}`, thread.PendingChat{Deliver: "steer", Text: "t"}},
		{`{"type":"chat","text":"t","deliver":"followUp"}`, thread.PendingChat{Deliver: "followUp", Text: "t"}},
		{`{"type":"chat","text":"t","deliver":"interrupt"}`, thread.PendingChat{Deliver: "interrupt", Text: "t"}},
		{`{"type":"chat","text":"t","deliver":"whenever"}`, thread.PendingChat{Deliver: "steer", Text: "t"}},
		{`{"type":"chat","text":"t","deliver":7}`, thread.PendingChat{Deliver: "steer", Text: "t"}},
		{`{"type":"chat","message":{"role":"user","content":"as a string"}}`, thread.PendingChat{
			Deliver: "steer", Text: "as a string",
		}},
		{`{"type":"chat","text":"look","message":{"content":[{"type":"text","text":"look"},` + image + `,7,` +
			`{"type":"image"}]}}`, thread.PendingChat{
			Deliver: "steer", Text: "look", Images: []json.RawMessage{json.RawMessage(image)},
		}},
	} {
		tt.want.ID, tt.want.Author = "x", "ada"
		got, ok := thread.ParseChat(posted("x "+tt.payload), "")
		if diff := cmp.Diff(got, tt.want); diff != "" || !ok {
			t.Errorf("%s: %v, got (-), want (+):\n%s", tt.payload, ok, diff)
		}
	}
}

// A Pending holds a bounded amount of text, and the ids of all.
func TestPendingIsBounded(t *testing.T) {
	p, text := &thread.Pending{}, strings.Repeat("x", 3<<20)
	for i := range 8 {
		p.Add(posted(fmt.Sprintf(`c%d {"type":"chat","text":%q}`, i, text)))
	}
	held := 0
	for i, c := range p.Chats() {
		held += len(c.Text)
		if c.Omitted != (i >= 5) || c.Omitted != (c.Text == "") || c.ID != fmt.Sprintf("c%d", i) {
			t.Errorf("chat %d: %s, omitted %v, %d bytes", i, c.ID, c.Omitted, len(c.Text))
		}
	}
	if len(p.Chats()) != 8 || held > 16<<20 {
		t.Errorf("%d chats, %d bytes", len(p.Chats()), held)
	}
	for i := range 8 {
		p.Add(posted(fmt.Sprintf(`l%d {"type":"pi.session","kind":"prompt","chat":"c%d"}`, i, i)))
	}
	p.Add(posted(fmt.Sprintf(`d {"type":"chat","text":%q}`, text)))
	if all := p.Chats(); len(all) != 1 || all[0].Omitted {
		t.Errorf("room that is free again is not used: %d chats", len(all))
	}
}

// tina is the fourth bot of the recorded thread with bots.
const tina = "44444444-0000-4000-8000-000000000000"

// In a recorded thread nothing is pending but what no agent had: a child's result, the task of a launch that failed,
// chats that no bot has answered.
func TestPendingOfRecordedThreads(t *testing.T) {
	paths, err := filepath.Glob("../testdata/threads/*.ndjson")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no recorded threads: %v", err)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() // read only
		var entries []thread.Entry
		chats := 0
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, thread.MaxEntry)
		for lines.Scan() {
			e, err := thread.ParseStored(lines.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(e.Payload), `"type":"chat"`) {
				chats++
			}
			entries = append(entries, e)
		}
		want := ""
		if filepath.Base(path) == "answered.ndjson" {
			want = "member.ann.k2 member.ann.k3 " + thread.CallKey(thread.ReactionID("logs", tina, 0), 0, 0)
		}
		for _, e := range entries {
			if strings.HasSuffix(e.ID, ".result") || strings.HasSuffix(e.ID, ".prompt") &&
				filepath.Base(path) == "launch_failed.ndjson" {
				want = e.ID
			}
		}
		if got := pendingIDs(t, "", entries); got != want || lines.Err() != nil {
			t.Errorf("%s: pending %q, want %q (%v)", path, got, want, lines.Err())
		}
		if chats == 0 && want == "" {
			t.Logf("%s has no chat", path)
		}
	}
}

// What a run mirrors of a recorded session leaves nothing pending of what the run was given, whether that was its
// prompt alone or chats before it.
func TestPendingOfRecordedSessions(t *testing.T) {
	for name, content := range recorded.Sessions(t, "../testdata") {
		for _, before := range [][]string{nil, {"a", "b"}} {
			var entries []thread.Entry
			for _, id := range append(slices.Clone(before), "later") {
				entries = append(entries, posted(id+` {"type":"chat","text":"t"}`))
			}
			entries = append(entries, posted(`r1.prompt {"type":"chat","text":"task","runId":"r1"}`))
			entries = append(entries, mirrored(recorded.Dialect(t, name), content, before)...)
			if got := pendingIDs(t, "r1", entries); got != "later" {
				t.Errorf("%s after %q: pending %q", name, before, got)
			}
		}
	}
}

// mirrored are the entries of a session file whose first prompt repeats the chats before and r1.prompt.
func mirrored(d session.Dialect, content []byte, before []string) (entries []thread.Entry) {
	enc := mirror.Encoder{
		Namer:  mirror.Namer{Dialect: d, Session: "s"},
		Redact: &redact.Redactor{}, Prompt: "r1.prompt", Before: before,
	}
	at := session.Position{}
	for line := range strings.Lines(string(content)) {
		end := session.Position{Offset: at.Offset + int64(len(line)), Index: at.Index + 1}
		e, ok := enc.Encode(session.Line{Data: []byte(strings.TrimSuffix(line, "\n")), Start: at, End: end})
		if at = end; ok {
			entries = append(entries, e)
		}
	}
	return entries
}
