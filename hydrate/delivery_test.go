package hydrate_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/hydrate"
	"arbe.0sk.ar/runner/internal/test/fakethread"
	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

func chatEntry(id, text string) thread.Entry {
	payload := thread.Marshal(thread.Chat{Type: thread.TypeChat, Text: text})
	return thread.Entry{ID: id, TS: "2026-01-01T00:00:00.000Z", AuthorID: "ada", Payload: payload}
}

// rebuilt is the session file of a run to come, and whether there is none.
func rebuilt(t *testing.T, d session.Dialect, entries []thread.Entry) (file string, empty bool) {
	t.Helper()
	r := &hydrate.Rebuilder{Dialect: d, DefaultCwd: "/here", NextPrompt: "next.prompt", TempDir: t.TempDir()}
	defer r.Close()
	for _, e := range entries {
		if err := r.Add(hydrate.Parse(e, d)); err != nil {
			t.Fatal(err)
		}
	}
	if r.Empty() {
		return "", true
	}
	var out bytes.Buffer
	if _, err := r.Copy(&out, "made", time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	return out.String(), false
}

// A user line that repeats several chats comes back equal, for the harness that wrote it.
func TestRebuildDelivered(t *testing.T) {
	for name, content := range recorded.Sessions(t, "../testdata") {
		d := recorded.Dialect(t, name)
		server := fakethread.New(t, nil)
		server.Put(chatEntry("a", "one"))
		server.Put(chatEntry("b", "two"))
		shipBefore(t, d, content, server, []string{"a", "b"})
		server.Put(chatEntry("c", "not had yet"))
		got, _ := rebuilt(t, d, server.Entries())
		sameFile(t, []byte(got), content)
	}
}

// For another harness the line that repeats chats is the turn, in its place, and the chats are none. What is pending
// is no turn of a file that a run gets, and the last turns of another file. A prompt is one where a line has it.
func TestConvertDelivered(t *testing.T) {
	const place = `"session":{"id":"s","entry":null,"parent":null,"index":`
	line := func(id, payload string) thread.Entry {
		return thread.Entry{ID: "pi:s:" + id, TS: "2026-01-01T00:00:01.000Z", Payload: json.RawMessage(payload)}
	}
	reply := func(id, text string) thread.Entry {
		return line(id, `{"type":"pi.assistant","stopReason":"stop","message":{"role":"assistant","content":[`+
			`{"type":"text","text":"`+text+`"}]},`+place+`2}}`)
	}
	user := func(id, chat, text string) thread.Entry {
		return line(id, `{"type":"pi.session","kind":"prompt","chat":"`+chat+`",`+place+`1},"line":{"type":"message",`+
			`"id":"`+id+`","message":{"role":"user","content":[{"type":"text","text":"`+text+`"}]}}}`)
	}
	entries := []thread.Entry{
		chatEntry("early", "EARLY"), chatEntry("zero", "ZERO"), chatEntry("r0.prompt", "LOST TASK"),
		chatEntry("half", "HALF"), chatEntry("r1.prompt", "TASK ONE"), user("0", "zero", "ZERO"),
		line("a", `{"type":"pi.session","kind":"prompt","chat":"half",`+place+`1},"line":{"type":"no turn"}}`),
		user("1", "r1.prompt", "TASK ONE"),
		reply("2", "FIRST"),
		chatEntry("r2.prompt", "TASK TWO"),
		line("3", `{"type":"pi.session","kind":"prompt","chats":["early","r2.prompt"],`+place+`3},`+
			`"line":{"type":"message","id":"3","message":{"role":"user","content":[{"type":"text","text":`+
			`"[chat from ada]\nEARLY\n\n[prompt]\nTASK TWO"}]}}}`),
		reply("4", "SECOND"),
		chatEntry("live", "LIVE"),
		line("5", `{"type":"pi.session","kind":"prompt","chat":"live",`+place+`5},"line":{"type":"message",`+
			`"id":"5","message":{"role":"user","content":[{"type":"text","text":"LIVE"}]}}}`),
		reply("6", "THIRD"),
		chatEntry("late", "LATE"),
	}
	for _, d := range []session.Dialect{session.Codex, session.Claude} {
		file, empty := rebuilt(t, d, entries)
		if empty {
			t.Fatal("no session")
		}
		at := -1
		for word := range strings.SplitSeq("ZERO,HALF,TASK ONE,FIRST,EARLY,TASK TWO,SECOND,LIVE,THIRD", ",") {
			i := strings.Index(file, word)
			if i <= at || strings.Count(file, word) != 1 {
				t.Errorf("%s: %s at %d after %d, %d times:\n%s", d.Prefix, word, i, at, strings.Count(file, word), file)
			}
			at = i
		}
		if strings.Contains(file, "LATE") || strings.Contains(file, "LOST TASK") {
			t.Errorf("%s: a pending chat is a turn:\n%s", d.Prefix, file)
		}
	}
	for _, id := range []string{"a", "r1.prompt"} {
		if _, empty := rebuilt(t, session.Pi, []thread.Entry{chatEntry(id, "one")}); !empty {
			t.Errorf("a thread of %s alone has a session", id)
		}
	}
}
