package view_test

import (
	"testing"

	"arbe.0sk.ar/runner/host/view"
)

// BenchmarkBuilder makes the items of recorded runs with edits and commands: the time for one entry.
func BenchmarkBuilder(b *testing.B) {
	for name, all := range threads(b) {
		if name != "threads/pi.ndjson" && name != "threads/claude.ndjson" && name != "threads/codex.ndjson" {
			continue
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var builder view.Builder
			for i := 0; b.Loop(); i++ {
				builder.Add(all[i%len(all)])
			}
		})
	}
}
