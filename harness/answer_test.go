package harness_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/harness"
)

// The answers in the recorded stdout of agents that print JSON: those of turns that ended well, and nothing else.
func TestAnswer(t *testing.T) {
	for _, tt := range []struct{ name, run, want string }{
		{"codex", "sessions/codex/simple_stop", "Hello there, finished."},
		{"claude-code", "sessions/claude-code/simple_stop", "Hello there, finished."},
		{"codex", "sessions/codex/http500_inf", ""},
		{"claude-code", "sessions/claude-code/sigterm_stream", ""},
		{"pi", "live/Live-pi", "Hello.\nBoth.\nFine."},
		{"codex", "live/Live-codex", "Hello.\nBoth.\nFine."},
		{"claude-code", "live/Live-claude-code", "Hello.\nBoth.\nFine.\nFine."},
		{"pi", "live/FullLiveFailure-pi", "Fine."},
		{"codex", "live/FullLiveFailure-codex", "Fine."},
		{"claude-code", "live/FullLiveFailure-claude-code", "Fine."},
		{"pi", "live/FullLiveInterruptStream-pi", "Fine."},
		{"codex", "live/FullLiveInterruptStream-codex", "Fine."},
		{"claude-code", "live/FullLiveInterruptStream-claude-code", "Fine."},
	} {
		b, err := os.ReadFile(filepath.Join("..", "testdata", filepath.FromSlash(tt.run), "stdout"))
		if err != nil {
			t.Error(err)
			continue
		}
		spec, err := harness.Lookup(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		answer := spec.Answer
		if strings.HasPrefix(tt.run, "live/") {
			answer = spec.Live.Answer
		}
		reply, answers := "", []string(nil)
		for line := range bytes.Lines(b) {
			text, final := answer(line)
			if text != "" {
				reply = text
			}
			if final {
				answers, reply = append(answers, reply), ""
			}
		}
		if got := strings.Join(answers, "\n"); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.name, tt.run, got, tt.want)
		}
	}
}
