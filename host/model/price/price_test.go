package price_test

import (
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/price"
)

var sonnet = price.Price{Input: 3e6, Output: 15e6, CacheRead: 3e5, CacheWrite: 3_750_000}

// What requests cost, in millionths of a dollar: never less than by the price.
func TestCost(t *testing.T) {
	for _, tt := range []struct {
		usage model.Usage
		price price.Price
		want  int64
	}{
		{model.Usage{}, sonnet, 0},
		{model.Usage{Input: 1_000_000}, sonnet, 3_000_000},
		{model.Usage{Input: 1000, Output: 100, CacheRead: 2000, CacheWrite: 400}, sonnet, 3000 + 1500 + 600 + 1500},
		{model.Usage{CacheRead: 1}, sonnet, 1}, // 0.3, rounded up
		{model.Usage{CacheRead: 10}, sonnet, 3},
		{model.Usage{Input: 5000, Output: 5000}, price.Price{}, 0},
		{model.Usage{Input: -5, Output: 1}, sonnet, 15},
		{model.Usage{Input: 1 << 62, Output: 1 << 62, CacheRead: 1 << 62, CacheWrite: 1 << 62}, price.Price{
			Input: 1e9, Output: 1e9, CacheRead: 1e9, CacheWrite: 1e9,
		}, 4e12},
	} {
		if got := tt.price.Cost(tt.usage); got != tt.want {
			t.Errorf("%+v at %+v: %d, want %d", tt.usage, tt.price, got, tt.want)
		}
	}
	if got := sonnet.Most(1000, 100); got != 3750+1500 { // all of it may be written to the cache
		t.Errorf("at the most %d", got)
	}
	if got := (price.Price{Input: 2e6, Output: 8e6, CacheWrite: 1}).Most(1000, 100); got != 2000+800 {
		t.Errorf("at the most %d", got)
	}
}

// The table has whole prices, and knows no other models.
func TestKnown(t *testing.T) {
	for _, tt := range []struct {
		provider, name string
		want           price.Price
		known          bool
	}{
		{"anthropic", "claude-sonnet-4-5", sonnet, true},
		{"openai", "gpt-4.1", price.Price{Input: 2e6, Output: 8e6, CacheRead: 5e5, CacheWrite: 2e6}, true},
		{"openai", "claude-sonnet-4-5", price.Price{}, false},
		{"acme", "gpt-4.1", price.Price{}, false},
		{"anthropic", "claude-sonnet-4-5-mine", price.Price{}, false},
	} {
		if got, known := price.Known(tt.provider, tt.name); got != tt.want || known != tt.known {
			t.Errorf("%s/%s: %+v, %t", tt.provider, tt.name, got, known)
		}
	}
	names := price.Names()
	if len(names) < 20 {
		t.Errorf("%d models", len(names))
	}
	for _, name := range names {
		provider, model, _ := strings.Cut(name, "/")
		p, known := price.Known(provider, model)
		if !known || p.Input < 1 || p.Output <= p.Input || p.CacheRead < 1 || p.CacheWrite < p.Input || p.Output > 1e9 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
