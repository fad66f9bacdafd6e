package view_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/view"
	"arbe.0sk.ar/runner/thread"
)

// Entries without a run's id are of the run that began last. A late signal of a run begins it no second time.
func TestPart(t *testing.T) {
	const line = `{"type":"pi.session","line":"{}"}`
	of := func(run string) string { return `{"type":"signal.dispatch.heartbeat","runId":"` + run + `"}` }
	entries := []string{line, of("r1"), line, of("r2"), line, of("r1"), line, "{", of("r3"), line}
	for run, want := range map[string]string{
		"r1": ".++..+....", "r2": "...++.++..", "r3": "........++", "r4": "..........",
	} {
		p := view.Part{Run: run}
		var got strings.Builder
		for _, payload := range entries {
			if p.Has(thread.Entry{Payload: []byte(payload)}) {
				got.WriteByte('+')
			} else {
				got.WriteByte('.')
			}
		}
		if got.String() != want {
			t.Errorf("%s: %s, want %s", run, &got, want)
		}
	}
}
