package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/thread"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// ago returns the time some seconds before noon, as a summary has it.
func ago(seconds int) string { return thread.Stamp(noon.Add(-time.Duration(seconds) * time.Second)) }

func TestDurations(t *testing.T) {
	for seconds, want := range map[int]string{
		0: "0s 0s", 59: "59s 59s", 61: "1m 1m01s", 3599: "59m 59m59s", 3661: "1h 1h01m", 359999: "4d 99h59m",
		172799: "47h 47h59m", 400000: "4d 4d", 86400 * 1000: "2y 1000d",
	} {
		got := age(ago(seconds), noon) + " " + shortDuration(time.Duration(seconds)*time.Second)
		if got != want {
			t.Errorf("%d s: %s, want %s", seconds, got, want)
		}
	}
	for cost, want := range map[float64]string{0: "$0.0000", 0.25: "$0.2500", 1.239: "$1.24", 1234.5: "$1234"} {
		if got := dollars(&cost); got != want {
			t.Errorf("%v: %s, want %s", cost, got, want)
		}
	}
}

func TestStateOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		v    thread.Summary
		want string
	}{
		{"ended", thread.Summary{Status: "failed", LastEntryAt: ago(1000)}, "failed 0s"},
		{"working", thread.Summary{Status: "running", NextMs: 5000, LastEntryAt: ago(5)}, "running 5s"},
		{"waiting", thread.Summary{Status: "running", NextMs: 60_000, LastEntryAt: ago(50), Waiting: true}, "waiting 50s"},
		{"one heartbeat is missing", thread.Summary{Status: "running", NextMs: 5000, LastEntryAt: ago(12)}, "silent 12s"},
		{"three are", thread.Summary{Status: "running", NextMs: 5000, LastEntryAt: ago(16), Waiting: true}, "dead 16s"},
		{"before the first", thread.Summary{Status: "running", LastEntryAt: ago(31)}, "running 31s"},
		{"not known", thread.Summary{Status: "running"}, "running 0s"},
	} {
		state, silence := stateOf(tt.v, noon)
		if got := fmt.Sprint(state, " ", silence); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A line is never wider than the terminal, whatever a thread has.
func TestTableWidth(t *testing.T) {
	cost := 12345.678
	long := strings.Repeat("長い", 100)
	threads := []thread.Summary{
		{ID: strings.Repeat("n", 128), Status: "running", StartedAt: ago(1e9), Harness: long, Model: long, Title: long, Cost: &cost},
		{ID: "01a1fe57-27a9-7058-90a6-9a5db6aeb558", Status: "failed", ErrorClass: long, StartedAt: ago(1), Title: "a\x1b[31m\tb"},
		{ID: "01a1fe57-27a9-7058-90a6-9a5db6aeb559", Status: "odd", Parent: &thread.Parent{ThreadID: "01a1fe57-27a9-7058-90a6-9a5db6aeb558"}},
		{ID: "a", Parent: &thread.Parent{ThreadID: "b"}}, {ID: "b", Parent: &thread.Parent{ThreadID: "a"}},
	}
	for width := 1; width < 250; width++ {
		lines := table{width: width}.lines(threads, noon)
		if len(lines) != len(threads)+1 {
			t.Fatalf("%d columns: %d lines", width, len(lines))
		}
		for _, line := range lines {
			if got := runewidth.StringWidth(line); got > width || strings.Contains(line, "\x1b") {
				t.Errorf("%d columns: %d of %q", width, got, line)
			}
		}
	}
}

// Children stand behind their parent, at any depth, and each thread stands there once.
func TestFamily(t *testing.T) {
	below := func(id, parent string) thread.Summary {
		return thread.Summary{ID: id, Parent: &thread.Parent{ThreadID: parent}}
	}
	var got []string
	for _, r := range family([]thread.Summary{
		below("grandchild", "child"), {ID: "other"}, below("child", "parent"), below("orphan", "gone"), {ID: "parent"},
		below("second", "parent"), below("self", "self"), below("a", "b"), below("b", "a"),
	}) {
		got = append(got, fmt.Sprint(r.depth, r.ID))
	}
	want := []string{"0other", "0orphan", "0parent", "1child", "2grandchild", "1second", "0self", "0a", "1b"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A board has what the last page has, and what has changed since; of older threads it knows no better.
func TestBoard(t *testing.T) {
	b := &board{
		filter: thread.Filter{Statuses: []string{"running"}}, limit: 2, rows: map[string]thread.Summary{},
		printed: map[string]string{},
	}
	page := func(ids ...string) (p thread.ListPage) {
		for _, id := range ids {
			started := map[string]int{"new": 1, "mid": 2, "old": 3}[id]
			p.Threads = append(p.Threads, thread.Summary{ID: id, Status: "running", StartedAt: ago(started)})
		}
		return p
	}
	have := func() string {
		var ids []string
		for _, v := range b.sorted() {
			ids = append(ids, v.ID)
		}
		return strings.Join(ids, " ")
	}
	b.replace(page("old"))
	b.replace(page("new", "mid"))
	if got := have(); got != "new mid old" {
		t.Errorf("got %s: the old one may have had no place on the page", got)
	}
	if gone := b.replace(page("new")); fmt.Sprint(gone) != "[mid old]" || have() != "new" {
		t.Errorf("left %v, have %s", gone, have())
	}
	v := page("mid").Threads[0]
	if !b.change(thread.Change{Summary: v}) || !b.news(v) || b.news(v) {
		t.Error("a thread that changed is news once")
	}
	v.LastBeatAt = ago(0)
	if b.news(v) {
		t.Error("a heartbeat is news")
	}
	if v.Status = "failed"; b.change(thread.Change{Summary: v}) || have() != "new" {
		t.Errorf("one that the filter no longer covers is kept: %s", have())
	}
	if b.change(thread.Change{Summary: page("new").Threads[0], Deleted: true}); have() != "" {
		t.Errorf("one that is deleted is kept: %s", have())
	}
	for i := range mostBoard + 10 {
		b.change(thread.Change{Summary: thread.Summary{ID: fmt.Sprint(i), Status: "running", StartedAt: ago(i)}})
	}
	if len(b.rows) != mostBoard || b.rows["0"].ID == "" {
		t.Errorf("%d threads", len(b.rows))
	}
}

func TestParseSince(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"12h": 12 * time.Hour, "7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "0s": 0, "-1h": 0, "d": 0, "yesterday": 0, "7": 0,
	} {
		if got, err := parseSince(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// A run has its own entries, and those without a run's id from its beginning to that of another run.
func TestPart(t *testing.T) {
	entry := func(run string) thread.Entry {
		return thread.Entry{Payload: []byte(`{"type":"signal.x.y","runId":"` + run + `"}`)}
	}
	line := thread.Entry{Payload: []byte(`{"type":"pi.assistant"}`)}
	p := part{run: "r2"}
	var got []bool
	for _, e := range []thread.Entry{line, entry("r1"), line, entry("r2"), line, entry("r1"), line, entry("r3"), line, entry("r2")} {
		got = append(got, p.has(e))
	}
	want := []bool{false, false, false, true, true, false, true, false, false, true}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
