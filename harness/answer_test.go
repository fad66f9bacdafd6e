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
		{"codex", "simple_stop", "Hello there, finished."},
		{"claude-code", "simple_stop", "Hello there, finished."},
		{"codex", "http500_inf", ""},
		{"claude-code", "sigterm_stream", ""},
	} {
		b, err := os.ReadFile(filepath.Join("..", "testdata", "sessions", tt.name, tt.run, "stdout"))
		if err != nil {
			t.Error(err)
			continue
		}
		spec, err := harness.Lookup(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		reply, answers := "", []string(nil)
		for line := range bytes.Lines(b) {
			text, final := spec.Answer(line)
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
