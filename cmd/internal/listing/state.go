// Package listing is the list of threads as the command line shows it: the state of each thread, shortened ids, a table
// for people, lines for programs, and a board of a list that changes.
package listing

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// States of a thread that are no status.
const (
	Waiting = string(view.Waiting) // a live run waits for a chat
	Silent  = string(view.Silent)  // a heartbeat of the run is missing
	Dead    = string(view.Dead)    // three heartbeats of the run are missing
	Deleted = "deleted"
)

// StateOf returns a thread's status, or waiting, silent or dead where that is more exact; and of an open run how long
// ago its last entry came. now is by the server's clock.
func StateOf(v thread.Summary, now time.Time) (state string, silence time.Duration) {
	l := view.PulseOf(v).At(now)
	switch l.State {
	case view.Waiting, view.Silent, view.Dead:
		return string(l.State), l.Silence
	}
	return v.Status, l.Silence
}

// WaitingFor returns for how long the agent of a live run has waited for a chat; "" where it does not.
func WaitingFor(v thread.Summary, now time.Time) string {
	since, err := time.Parse(time.RFC3339, v.WaitingAt)
	if err != nil {
		return ""
	}
	return ShortDuration(max(0, now.Sub(since)))
}

// Answering returns how many bots answer on a thread now; "" for none.
func Answering(v thread.Summary) string {
	switch v.Reactions {
	case 0:
		return ""
	case 1:
		return "1 bot answers"
	}
	return view.Count(int64(v.Reactions), "bot") + " answer"
}

// DurationOf returns how long a thread's latest run has lasted; false before any.
func DurationOf(v thread.Summary, now time.Time) (time.Duration, bool) {
	start, err := time.Parse(time.RFC3339, v.StartedAt)
	if err != nil || v.Status == thread.StatusIdle {
		return 0, false
	}
	if end, err := time.Parse(time.RFC3339, v.EndedAt); err == nil {
		now = end
	}
	return max(0, now.Sub(start)), true
}

// Words returns a thread's status and what is known of its latest run, for people.
func Words(v thread.Summary, now time.Time) []string {
	words := []string{v.Status}
	add := func(word string) {
		if word != "" {
			words = append(words, Clip(word, 80))
		}
	}
	add(v.ErrorClass)
	add(v.Harness)
	add(v.Model)
	if d, ok := DurationOf(v, now); ok {
		add(ShortDuration(d))
	}
	add(Dollars(v.Cost))
	state, silence := StateOf(v, now)
	switch {
	case v.Status != thread.StatusRunning || v.LastEntryAt == "":
	case state == Silent, state == Dead:
		add(state)
		add("no entry for " + ShortDuration(silence))
	default:
		if state == Waiting {
			add(strings.TrimSpace("waiting for a chat " + WaitingFor(v, now)))
		}
		add("last entry " + ShortDuration(silence) + " ago")
	}
	add(Answering(v))
	if n := v.Undelivered(); n > 0 {
		add(view.Count(int64(n), "chat") + " not delivered yet")
	}
	return words
}

// WriteRow writes a thread as a line for programs: its fields with tabs between them, or one JSON object.
func WriteRow(w io.Writer, v thread.Summary, now time.Time, asJSON bool) error {
	state, silence := StateOf(v, now)
	if asJSON {
		row := struct {
			thread.Summary
			State    string `json:"state"`
			SilentMs int64  `json:"silentMs,omitempty"`
		}{v, state, silence.Milliseconds()}
		_, err := w.Write(append(thread.Marshal(row), '\n'))
		return err
	}
	cost, seconds := "", ""
	if v.Cost != nil {
		cost = strconv.FormatFloat(math.Round(*v.Cost*1e6)/1e6, 'f', -1, 64) // sums of floats have long tails
	}
	if d, ok := DurationOf(v, now); ok {
		seconds = strconv.FormatInt(int64(d/time.Second), 10)
	}
	fields := []string{v.ID, state, v.StartedAt, seconds, v.Harness, v.Model, cost, v.Title}
	if v.Row != nil {
		fields = append(fields, rowFields(v.Row)...)
	}
	_, err := fmt.Fprintln(w, strings.Join(visible(fields), "\t"))
	return err
}

// titleOf returns a thread's title for people. One that has a row has its name, if it has one, and its tags.
func titleOf(v thread.Summary) string {
	if v.Row == nil {
		return v.Title
	}
	var parts []string
	if v.Pinned {
		parts = append(parts, "★")
	}
	if v.Name != "" {
		parts = append(parts, v.Name)
	} else if v.Title != "" {
		parts = append(parts, v.Title)
	}
	for _, tag := range v.Tags {
		parts = append(parts, "#"+tag)
	}
	if v.Closed {
		parts = append(parts, "(closed)")
	}
	return strings.Join(parts, " ")
}

// rowFields returns a row's fields in a line for programs, which follow the summary's.
func rowFields(r *thread.Row) []string {
	var marks []string
	if r.Pinned {
		marks = append(marks, "pinned")
	}
	if r.Closed {
		marks = append(marks, "closed")
	}
	return []string{r.House, r.Name, strings.Join(r.Tags, ","), strings.Join(marks, ",")}
}
