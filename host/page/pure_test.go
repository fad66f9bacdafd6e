package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
)

var at = time.UnixMilli(1_800_000_000_000)

func TestStateOf(t *testing.T) {
	ago := func(d time.Duration) string { return thread.Stamp(at.Add(-d)) }
	beat := func(d time.Duration) thread.Summary {
		return thread.Summary{Status: "running", NextMs: 5000, LastEntryAt: ago(d)}
	}
	waiting := beat(time.Second)
	waiting.Waiting = true
	between, late := beat(80*time.Second), beat(100*time.Second) // its heartbeats come each minute
	between.Waiting, late.Waiting = true, true
	for _, tt := range []struct {
		v          thread.Summary
		want, text string
	}{
		{thread.Summary{Status: "idle"}, "idle", "idle"},
		{thread.Summary{Status: "completed", Waiting: true}, "done", "done"},
		{thread.Summary{Status: "failed", ErrorClass: "oom"}, "failed", "failed: out of memory"},
		{thread.Summary{Status: "failed"}, "failed", "failed"},
		{thread.Summary{Status: "failed", ErrorClass: "of a later version"}, "failed", "failed"},
		{thread.Summary{Status: "cancelled"}, "cancelled", "cancelled"},
		{beat(time.Second), "working", "working"},
		{waiting, "waiting", "waiting"},
		{between, "waiting", "waiting"},
		{late, "silent", "silent, dead in 1m 20s"},
		{beat(10 * time.Second), "silent", "silent, dead in 5s"},
		{beat(time.Hour), "dead", "dead"},
		{thread.Summary{Status: "running", NextMs: 1 << 62, LastEntryAt: ago(24 * time.Hour)}, "working", "working"},
	} {
		got, text := stateOf(tt.v, at)
		if got != tt.want || text != tt.text {
			t.Errorf("%+v: %s, %q, want %s, %q", tt.v, got, text, tt.want, tt.text)
		}
		// Between two changes the script shows the state that the server renders then.
		r := newRow(tt.v, at)
		for name, then := range map[string]int64{"silent": r.Silent, "dead": r.Dead} {
			if then == 0 {
				continue
			}
			if after, _ := stateOf(tt.v, time.UnixMilli(then)); after != name {
				t.Errorf("%+v: %s at its time of %s", tt.v, after, name)
			}
			if before, _ := stateOf(tt.v, time.UnixMilli(then-1)); before == name {
				t.Errorf("%+v: %s before its time", tt.v, name)
			}
		}
	}
}

func TestMoney(t *testing.T) {
	for cost, want := range map[float64]string{0: "", 0.00004: "<$0.0001", 0.004: "$0.0040", 0.25: "$0.25"} {
		if got := (&row{Summary: thread.Summary{Cost: &cost}}).Money(); got != want {
			t.Errorf("%v: %q, want %q", cost, got, want)
		}
	}
	if got := new(row).Money(); got != "" {
		t.Errorf("no cost: %q", got)
	}
}

// Children stand below their parents. Rows whose ancestors are a circle, or very many, stand at the top.
func TestTree(t *testing.T) {
	chain := ""
	for i := range 30 {
		chain += fmt.Sprintf(" c%d:c%d", i, i+1)
	}
	for _, tt := range []struct{ rows, want string }{
		{"a b", "a b"},
		{"b:a a", "a(b)"},
		{"c:b b:a d:a a e:gone", "a(b(c) d) e"},
		{"a:a b", "a b"},
		{"a:b b:a c:a", "a b c"},
	} {
		if got := shape(tree(parse(tt.rows))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.rows, got, tt.want)
		}
	}
	if got := shape(tree(parse(chain))); strings.Count(got, "c") != 30 {
		t.Errorf("a long chain: %s", got)
	}
}

// parse makes rows of "id" and "id:parent".
func parse(text string) (rows []*row) {
	for field := range strings.FieldsSeq(text) {
		id, parent, has := strings.Cut(field, ":")
		r := &row{Summary: thread.Summary{ID: id}}
		if has {
			r.Parent = &thread.Parent{ThreadID: parent}
		}
		rows = append(rows, r)
	}
	return rows
}

func shape(rows []*row) string {
	var parts []string
	for _, r := range rows {
		part := r.ID
		if len(r.Children) > 0 {
			part += "(" + shape(r.Children) + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func TestFilter(t *testing.T) {
	v := thread.Summary{ID: "abc-1", Title: "Fix the Parser", Status: "failed"}
	for _, tt := range []struct {
		f    filter
		want bool
	}{
		{filter{}, true},
		{filter{Text: "pars"}, true},
		{filter{Text: "ABC-"}, true},
		{filter{Text: "lexer"}, false},
		{filter{State: "failed"}, true},
		{filter{State: "done"}, false},
		{filter{Text: "fix", State: "done"}, false},
	} {
		if got := tt.f.has(v, at); got != tt.want {
			t.Errorf("%+v: %v", tt.f, got)
		}
	}
}

// Whatever the fields of a summary are, a row has no markup of theirs and no address of another scheme.
func TestRowEscapes(t *testing.T) {
	const evil = `"><img src=x onerror=alert(1)><script>alert(1)</script>` + "`" + `javascript:alert(1)//'`
	cost := 1.5
	r := newRow(thread.Summary{
		ID: "t1", Title: evil, Status: "failed", ErrorClass: evil, Harness: evil, Model: evil, Run: evil, Cost: &cost,
		Sandbox: &thread.Sandbox{Provider: evil, Ref: evil}, Parent: &thread.Parent{ThreadID: evil}, Offset: evil,
		StartedAt: evil, LastEntryAt: evil,
	}, at)
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, "row", r); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<img", "<script", `href="javascript`} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%s in %s", bad, b.String())
		}
	}
}
