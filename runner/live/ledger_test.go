package live_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/runner/live"
	"arbe.0sk.ar/runner/session"
)

// judge judges a user line of pi, and notes the result.
func judge(l *live.Ledger, spec harness.Spec, index int, text string) []string {
	line, _ := json.Marshal(map[string]any{
		"type": "message", "id": "m", "message": map[string]any{"role": "user", "content": text},
	})
	chats, fresh := l.Judge(spec.Live, index, line, session.Pi.Decode(line))
	if fresh {
		l.Add(live.Record{Op: live.OpTaken, Line: index, Chats: chats})
	}
	return chats
}

// A line is judged the same by a worker that has all records, whenever it does: chats with the same text go to their
// lines in order, and a line from before a chat was written never has it.
func TestJudge(t *testing.T) {
	spec, err := harness.Lookup("pi")
	if err != nil {
		t.Fatal(err)
	}
	put := func(id, text string, line int) live.Record {
		return live.Record{Op: live.OpPut, ID: "m-" + id, Chat: id, Text: text, Line: line}
	}
	type step struct {
		record live.Record
		line   int // judged, where the record is empty
		text   string
		want   string
	}
	steps := []step{
		{line: 1, text: "yes"},
		{record: put("a", "yes", 2)},
		{line: 1, text: "yes"},
		{line: 2, text: "no"},
		{record: put("b", "yes", 3)},
		{line: 3, text: "yes", want: "a"},
		{line: 4, text: "yes", want: "b"},
		{line: 5, text: "yes"},
		{record: put("c", "again", 6)},
		{record: live.Record{Op: live.OpBack, ID: "m-c"}},
		{record: live.Record{Op: live.OpPut, ID: "m-c2", Chat: "c", Text: "again", Line: 6, Attempt: 1}},
		{line: 6, text: "again", want: "c"},
		{
			record: live.Record{
				Op:     live.OpPut,
				ID:     "m-p",
				Chat:   "p",
				Prompt: true,
				Sum:    live.TextSum("secret"),
				Line:   7,
			},
		},
		{line: 7, text: "another"},
		{line: 8, text: "secret", want: "p"},
	}
	var all []live.Record
	var first live.Ledger
	for _, s := range steps {
		if s.record.Op != "" {
			first.Add(s.record)
			all = append(all, s.record)
			continue
		}
		got := judge(&first, spec, s.line, s.text)
		if strings.Join(got, " ") != s.want {
			t.Errorf("line %d: %q, want %q", s.line, got, s.want)
		}
		if s.want != "" && len(all) > 0 {
			all = append(all, live.Record{Op: live.OpTaken, Line: s.line, Chats: got})
		}
	}
	for _, compact := range []bool{false, true} {
		var later live.Ledger
		for _, r := range all {
			b, err := json.Marshal(r)
			var read live.Record
			if err == nil {
				err = json.Unmarshal(b, &read)
			}
			if err != nil {
				t.Fatal(err)
			}
			later.Add(read)
		}
		if compact {
			b, err := json.Marshal(later.Compact())
			var r live.Record
			if err == nil {
				err = json.Unmarshal(b, &r)
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "again") {
				t.Errorf("the text of a chat that is through is kept: %s", b)
			}
			later = live.Ledger{}
			later.Add(r)
		}
		for i := len(steps) - 1; i >= 0; i-- {
			if s := steps[i]; s.record.Op == "" {
				if got := judge(&later, spec, s.line, s.text); strings.Join(got, " ") != s.want {
					t.Errorf("judged later, compact %v: line %d: %q, want %q", compact, s.line, got, s.want)
				}
			}
		}
		if diff := cmp.Diff([]string{"a", "b", "c", "p"}, later.Turn); diff != "" {
			t.Error(diff)
		}
	}
}

// What an agent may have is known from the records alone.
func TestLedger(t *testing.T) {
	var l live.Ledger
	add := func(op live.Op, id, chat string) { l.Add(live.Record{Op: op, ID: id, Chat: chat}) }
	open := func() string {
		var ids []string
		for _, s := range l.Open() {
			ids = append(ids, s.ID)
		}
		return strings.Join(ids, " ")
	}
	want := func(what, wantOpen string, holds ...bool) {
		t.Helper()
		if got := open(); got != wantOpen {
			t.Errorf("%s: open %q, want %q", what, got, wantOpen)
		}
		for i, chat := range []string{"a", "b", "c"}[:len(holds)] {
			if got := l.Holds(chat); got != holds[i] {
				t.Errorf("%s: holds %s: %v", what, chat, got)
			}
		}
	}
	add(live.OpAgent, "", "")
	add(live.OpPut, "m1", "a")
	add(live.OpPut, "m2", "b")
	want("put", "m1 m2", true, true, false)
	add(live.OpBack, "m1", "")
	want("back", "m2", false, true, false)
	if got := l.Attempts("a"); got != 1 {
		t.Errorf("%d attempts", got)
	}
	add(live.OpInterrupt, "i1", "c")
	if !l.Interrupted || l.Interrupt != [2]string{"i1", "c"} {
		t.Errorf("%+v", l.Interrupt)
	}
	l.Add(live.Record{Op: live.OpTaken, Line: 4, Chats: []string{"b"}})
	want("taken", "", false, true, false)
	l.Add(live.Record{Op: live.OpTurn, Line: 6, Chats: []string{"b"}, Idles: 2})
	if l.Interrupted || !l.CutOff || l.Turns != 1 || l.TurnLine != 6 || l.Idles != 2 || len(l.Turn) > 0 {
		t.Errorf("after the turn: %+v", l)
	}
	l.Add(live.Record{Op: live.OpRefused, Chat: "c", Why: "no"})
	want("refused", "", false, true, true)
	if l.Refused != 1 || l.Why != "no" || l.Handled {
		t.Errorf("refused: %+v", l)
	}
	l.Add(live.Record{Op: live.OpHandled, Chat: "d", Why: "an extension"})
	if l.Refused != 2 || l.Why != "no" || !l.Handled || !l.Holds("d") {
		t.Errorf("handled: %+v", l)
	}
	add(live.OpPut, "m3", "a")
	want("put again", "m3", true)
	add(live.OpAgent, "", "") // another process
	want("another agent", "", false, true, true)
	l.Add(live.Record{Op: live.OpPost, ID: "p", Line: 3, Entry: json.RawMessage(`{}`)})
	if len(l.Posts) != 1 {
		t.Error("no post")
	}
	add(live.OpPosted, "p", "")
	if len(l.Posts) != 0 {
		t.Error("it is posted")
	}
}
