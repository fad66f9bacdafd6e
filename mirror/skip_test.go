package mirror_test

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/internal/test/recorded"
	"arbe.0sk.ar/runner/session"
	"arbe.0sk.ar/runner/thread"
)

// Lines that are skipped leave an Encoder as lines that are encoded do: the entries of those that follow are the same.
func TestSkip(t *testing.T) {
	contents := append(slices.Collect(maps.Values(recorded.Sessions(t, "../testdata"))), lines(20))
	for _, content := range contents {
		for _, d := range session.Harnesses() {
			var file []session.Line
			at := session.Position{}
			for raw := range bytes.Lines(content) {
				next := session.Position{Offset: at.Offset + int64(len(raw)), Index: at.Index + 1}
				file = append(file, session.Line{Start: at, End: next, Data: bytes.TrimSuffix(raw, []byte("\n"))})
				at = next
			}
			encode := func(skipped int) (all []thread.Entry) {
				e := newEncoder()
				e.Dialect, e.Prompt = d, "r1.prompt"
				for i, l := range file {
					if i < skipped {
						e.Skip(l)
					} else if entry, fresh := e.Encode(l); fresh {
						if entry.TS > "2026-11" { // of a line without a time, before any with one
							entry.TS = ""
						}
						all = append(all, entry)
					}
				}
				return all
			}
			whole := encode(0)
			for _, skipped := range []int{1, 2, len(file) / 2, len(file) - 1} {
				if want, got := whole[min(skipped, len(whole)):], encode(skipped); !reflect.DeepEqual(want, got) {
					t.Fatalf("%s, %.60q…, %d lines skipped: %s", d.Prefix, content, skipped, cmp.Diff(want, got))
				}
			}
		}
	}
}
