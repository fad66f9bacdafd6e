package jetstream

import (
	"testing"
	"time"
)

// TestPatience holds the timeouts of tries and of whole requests.
func TestPatience(t *testing.T) {
	const s = time.Second
	type answer struct{ at, took time.Duration }
	for _, tt := range []struct {
		name    string
		answers []answer
		now     time.Duration
		try     [4]time.Duration
		request time.Duration
		publish time.Duration // of ten messages
	}{
		{"no answer yet", nil, 0, [4]time.Duration{2 * s, 4 * s, 8 * s, 10 * s}, 10 * s, 20 * s},
		{"quick", []answer{{0, s / 10}}, s, [4]time.Duration{2 * s, 4 * s, 8 * s, 10 * s}, 10 * s, 20 * s},
		{"slow", []answer{{0, s}, {s, s / 10}}, 2 * s, [4]time.Duration{4 * s, 8 * s, 10 * s, 10 * s}, 20 * s, 40 * s},
		{"very slow", []answer{{0, 9 * s}}, s, [4]time.Duration{10 * s, 10 * s, 10 * s, 10 * s}, 50 * s, 100 * s},
		{"slow half a minute ago", []answer{{0, s}}, 31 * s, [4]time.Duration{4 * s, 8 * s, 10 * s, 10 * s}, 20 * s, 40 * s},
		{"slow a minute ago", []answer{{0, s}}, 60 * s, [4]time.Duration{2 * s, 4 * s, 8 * s, 10 * s}, 10 * s, 20 * s},
		{
			"slow, and quick since",
			[]answer{{0, s}, {31 * s, s / 10}, {62 * s, s / 10}},
			63 * s,
			[4]time.Duration{2 * s, 4 * s, 8 * s, 10 * s},
			10 * s, 20 * s,
		},
	} {
		start := time.Now()
		p := timeouts{least: tryTimeout, since: start}
		for _, a := range tt.answers {
			p.answered(start.Add(a.at), a.took)
		}
		now := start.Add(tt.now)
		for i, want := range tt.try {
			if got := p.try(now, i); got != want {
				t.Errorf("%s: try %d: %v, want %v", tt.name, i, got, want)
			}
		}
		if got := p.request(now); got != tt.request {
			t.Errorf("%s: request: %v, want %v", tt.name, got, tt.request)
		}
		if got := p.publish(now, 10); got != tt.publish {
			t.Errorf("%s: publish: %v, want %v", tt.name, got, tt.publish)
		}
	}
}
