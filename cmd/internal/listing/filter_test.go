package listing

import (
	"strings"
	"testing"
	"time"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func TestParseSince(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0.5d": 12 * time.Hour, "1h30m": 90 * time.Minute,
		"": 0, "7": 0, "d": 0, "-1d": 0, "0s": 0, "1w": 0, "NaNd": 0,
	} {
		if got, err := ParseSince(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
}

// A thread without a run has no start, and none is of a time.
func TestCovers(t *testing.T) {
	pi, codex := []string{"pi"}, []string{"codex", "pi"}
	for _, tt := range []struct {
		filter    client.Filter
		harness   string
		startedAt string
		want      bool
	}{
		{client.Filter{}, "", "", true},
		{client.Filter{Harnesses: pi}, "pi", ago(60), true},
		{client.Filter{Harnesses: codex}, "pi", "", true},
		{client.Filter{Harnesses: pi}, "codex", ago(60), false},
		{client.Filter{Since: noon.Add(-time.Minute)}, "pi", ago(60), true},
		{client.Filter{Since: noon.Add(-time.Minute)}, "pi", ago(61), false},
		{client.Filter{Since: noon.Add(-time.Minute)}, "pi", "", false},
		{client.Filter{Harnesses: pi, Since: noon.Add(-time.Minute)}, "codex", ago(1), false},
	} {
		v := thread.Summary{Harness: tt.harness, StartedAt: tt.startedAt}
		if got := Covers(tt.filter, v); got != tt.want {
			t.Errorf("%+v: %q at %q: %v", tt.filter, tt.harness, tt.startedAt, got)
		}
	}
}

func TestWords(t *testing.T) {
	cost := 0.5
	ended := thread.Summary{
		Status: "failed", ErrorClass: "exit", Harness: "pi", Model: "m", Cost: &cost,
		StartedAt: ago(90), EndedAt: ago(30), LastEntryAt: ago(30),
	}
	running := thread.Summary{Status: "running", StartedAt: ago(5), LastEntryAt: ago(2), LastBeatAt: ago(2)}
	dead := thread.Summary{Status: "running", StartedAt: ago(500), LastEntryAt: ago(400), LastBeatAt: ago(400)}
	waiting := running
	waiting.Waiting, waiting.WaitingAt, waiting.Pending = true, ago(3), 2
	for want, v := range map[string]thread.Summary{
		"idle":                 {Status: "idle"},
		"idle · 2 bots answer": {Status: "idle", Reactions: 2},
		"failed · exit · pi · m · 1m00s · $0.5000":                                             ended,
		"running · 5s · last entry 2s ago":                                                     running,
		"running · 8m20s · dead · no entry for 6m40s":                                          dead,
		"running · 5s · waiting for a chat 3s · last entry 2s ago · 2 chats not delivered yet": waiting,
	} {
		if got := strings.Join(Words(v, noon), " · "); got != want {
			t.Errorf("%+v:\n%s\nwant %s", v, got, want)
		}
	}
}
