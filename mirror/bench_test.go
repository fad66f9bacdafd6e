package mirror_test

import (
	"bytes"
	"os"
	"testing"

	"arbe.0sk.ar/runner/mirror"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread/redact"
)

// BenchmarkEncode turns the lines of a recorded tool turn into entries.
func BenchmarkEncode(b *testing.B) {
	content, err := os.ReadFile("../testdata/sessions/pi/tool-turn_1.5.2-json/session.jsonl")
	if err != nil {
		b.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	redactor := redact.New(
		[]string{"A_KEY=0123456789abcdef", "B_TOKEN=fedcba9876543210", "C_SECRET=not-in-there"},
		nil,
	)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		e := mirror.Encoder{Namer: mirror.Namer{Dialect: session.Pi}, Redact: redactor}
		for i, l := range lines {
			e.Encode(session.Line{Start: session.Position{Index: i}, Data: l})
		}
	}
}
