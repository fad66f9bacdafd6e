package listing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// ago returns the time some seconds before noon, as a summary has it.
func ago(seconds int) string { return thread.Stamp(noon.Add(-time.Duration(seconds) * time.Second)) }

func TestDurations(t *testing.T) {
	for seconds, want := range map[int]string{
		0: "0s 0s", 59: "59s 59s", 61: "1m 1m01s", 3599: "59m 59m59s", 3661: "1h 1h01m", 359999: "4d 99h59m",
		172799: "47h 47h59m", 400000: "4d 4d", 86400 * 1000: "2y 1000d",
	} {
		got := age(ago(seconds), noon) + " " + ShortDuration(time.Duration(seconds)*time.Second)
		if got != want {
			t.Errorf("%d s: %s, want %s", seconds, got, want)
		}
	}
	for cost, want := range map[float64]string{
		0: "", 0.00004: "<$0.0001", 0.25: "$0.2500", 1.239: "$1.24", 1234.5: "$1234",
	} {
		if got := Dollars(&cost); got != want {
			t.Errorf("%v: %s, want %s", cost, got, want)
		}
	}
}

// Each state has a mark of its own, but for a silent run, which is a running one in another colour.
func TestMarks(t *testing.T) {
	states := map[string]string{}
	for _, state := range []string{
		thread.StatusIdle, thread.StatusRunning, thread.StatusCompleted, thread.StatusFailed, thread.StatusCancelled,
		Waiting, Silent, Dead,
	} {
		mark, style := cmdline.Mark(state)
		if mark == "?" || style == "" {
			t.Errorf("%s has mark %q in style %q", state, mark, style)
		}
		if other, taken := states[mark+style]; taken {
			t.Errorf("%s has the mark of %s", state, other)
		}
		states[mark+style] = state
	}
	mark, style := cmdline.Mark(string(outcome.Orphaned))
	if states[mark+style] != thread.StatusFailed {
		t.Error("an orphaned run has not the mark of a failed one")
	}
}

func TestStateOf(t *testing.T) {
	open := func(nextMs int64, last int, waiting bool) thread.Summary {
		return thread.Summary{Status: thread.StatusRunning, NextMs: nextMs, LastEntryAt: ago(last), Waiting: waiting}
	}
	for _, tt := range []struct {
		name string
		v    thread.Summary
		want string
	}{
		{"ended", thread.Summary{Status: "failed", LastEntryAt: ago(1000)}, "failed 0s"},
		{"working", open(5000, 5, false), "running 5s"},
		{"waiting", open(60_000, 50, true), "waiting 50s"},
		{"one heartbeat is missing", open(5000, 12, false), "silent 12s"},
		{"three are", open(5000, 16, false), "dead 16s"},
		{"it waits since the last one", open(5000, 60, true), "waiting 1m0s"},
		{"three are missing while it waits", open(5000, 180, true), "dead 3m0s"},
		{"before the first", open(0, 31, false), "running 31s"},
		{"not known", thread.Summary{Status: "running"}, "running 0s"},
	} {
		state, silence := StateOf(tt.v, noon)
		if got := fmt.Sprint(state, " ", silence); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// A live run that waits has since when in a wide table, and each thread with runs has how many chats wait for an agent.
func TestTableWaiting(t *testing.T) {
	threads := []thread.Summary{
		{
			ID: "a", Status: "running", StartedAt: ago(100), LastEntryAt: ago(5), Waiting: true, WaitingAt: ago(72),
			Title: "Write it",
		},
		{ID: "b", Status: "running", StartedAt: ago(200), LastEntryAt: ago(1), Pending: 1, Title: "Read it"},
		{ID: "c", Status: "failed", StartedAt: ago(300), Pending: 2, Title: "Find it"},
		{ID: "d", Status: "idle", StartedAt: ago(400), Pending: 3, Title: "A note", Reactions: 1},
	}
	for width, want := range map[int][]string{
		120: {
			"○ waiting, 1m12s", "Write it", "● running", "1 chat not delivered · Read it", "✘ failed",
			"2 chats not delivered · Find it", "· idle", "1 bot answers · A note",
		},
		60: {"○", "Write it", "●", "1 chat not delivered · Read it", "✘", "2 chats not delivered · Find it", "·", "1 bot answers · A note"},
	} {
		for i, line := range (Table{Width: width}).Lines(threads, noon)[1:] {
			if !strings.HasPrefix(line, want[2*i]+" ") || !strings.HasSuffix(line, " "+want[2*i+1]) {
				t.Errorf("%d columns: got %q, want %q and %q", width, line, want[2*i], want[2*i+1])
			}
		}
	}
	if got := WaitingFor(threads[1], noon); got != "" {
		t.Errorf("a run that works waits for %s", got)
	}
}

// A line is never wider than the terminal, whatever a thread has.
func TestTableWidth(t *testing.T) {
	const parent = "01a1fe57-27a9-7058-90a6-9a5db6aeb558"
	cost := 12345.678
	long := strings.Repeat("長い", 100)
	threads := []thread.Summary{
		{
			ID: strings.Repeat("n", 128), Status: "running", StartedAt: ago(1e9), Harness: long, Model: long,
			Title: long, Cost: &cost,
		},
		{ID: parent, Status: "failed", ErrorClass: long, StartedAt: ago(1), Title: "a\x1b[31m\tb"},
		{
			ID: "01a1fe57-27a9-7058-90a6-9a5db6aeb559", Status: "odd", Parent: &thread.Parent{ThreadID: parent},
		},
		{ID: "a", Parent: &thread.Parent{ThreadID: "b"}},
		{ID: "b", Parent: &thread.Parent{ThreadID: "a"}},
	}
	for width := 1; width < 250; width++ {
		lines := Table{Width: width}.Lines(threads, noon)
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
		below("grandchild", "child"),
		{ID: "other"},
		below("child", "parent"), below("orphan", "gone"),
		{ID: "parent"},
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
	b := NewBoard(client.Filter{Statuses: []string{"running"}}, 2)
	page := func(ids ...string) (p client.ListPage) {
		for _, id := range ids {
			started := map[string]int{"new": 1, "mid": 2, "old": 3}[id]
			p.Threads = append(p.Threads, thread.Summary{ID: id, Status: "running", StartedAt: ago(started)})
		}
		return p
	}
	have := func() string {
		var ids []string
		for _, v := range b.Sorted() {
			ids = append(ids, v.ID)
		}
		return strings.Join(ids, " ")
	}
	b.Replace(page("old"))
	b.Replace(page("new", "mid"))
	if got := have(); got != "new mid old" {
		t.Errorf("got %s: the old one may have had no place on the page", got)
	}
	if gone := b.Replace(page("new")); fmt.Sprint(gone) != "[mid old]" || have() != "new" {
		t.Errorf("left %v, have %s", gone, have())
	}
	v := page("mid").Threads[0]
	if !b.Change(client.Change{Summary: v}) || !b.News(v) || b.News(v) {
		t.Error("a thread that changed is news once")
	}
	v.LastBeatAt = ago(0)
	if b.News(v) {
		t.Error("a heartbeat is news")
	}
	if v.Status = "failed"; b.Change(client.Change{Summary: v}) || have() != "new" {
		t.Errorf("one that the filter no longer covers is kept: %s", have())
	}
	if b.Change(client.Change{Summary: page("new").Threads[0], Deleted: true}); have() != "" {
		t.Errorf("one that is deleted is kept: %s", have())
	}
	for i := range mostBoard + 10 {
		b.Change(client.Change{Summary: thread.Summary{ID: fmt.Sprint(i), Status: "running", StartedAt: ago(i)}})
	}
	if len(b.rows) != mostBoard || b.rows["0"].ID == "" {
		t.Errorf("%d threads", len(b.rows))
	}
}
