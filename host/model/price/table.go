package price

import (
	"maps"
	"slices"
)

// Known returns the price of a provider's model; false where the table does not have it. A house's own prices go
// before it.
func Known(provider, name string) (Price, bool) {
	p, ok := table[provider+"/"+name]
	return p, ok
}

// Names returns the models of the table, as PROVIDER/NAME.
func Names() []string { return slices.Sorted(maps.Keys(table)) }

// usd returns a price from dollars for a million tokens, as providers publish it. Without a price of its own (0) a
// token of the cache counts as another one.
func usd(input, output, cacheRead, cacheWrite float64) Price {
	if cacheRead == 0 {
		cacheRead = input
	}
	if cacheWrite == 0 {
		cacheWrite = input
	}
	return Price{Micros(input), Micros(output), Micros(cacheRead), Micros(cacheWrite)}
}

// table has the list prices of the two providers that need no address, as of 22 September 2026: from the catalogue of
// the npm package @earendil-works/pi-ai, version 0.87.1. They are those of requests up to 272,000 tokens: a bot's are
// smaller.
var table = map[string]Price{
	"anthropic/claude-fable-5":             usd(10, 50, 1, 12.5),
	"anthropic/claude-fable-5-1":           usd(10, 50, 0.25, 12.5),
	"anthropic/claude-haiku-4-5":           usd(1, 5, 0.1, 1.25),
	"anthropic/claude-haiku-4-5-20251001":  usd(1, 5, 0.1, 1.25),
	"anthropic/claude-opus-4-5":            usd(5, 25, 0.5, 6.25),
	"anthropic/claude-opus-4-5-20251101":   usd(5, 25, 0.5, 6.25),
	"anthropic/claude-opus-4-6":            usd(5, 25, 0.5, 6.25),
	"anthropic/claude-opus-4-7":            usd(5, 25, 0.5, 6.25),
	"anthropic/claude-opus-4-8":            usd(5, 25, 0.5, 6.25),
	"anthropic/claude-opus-5":              usd(5, 25, 0.5, 6.25),
	"anthropic/claude-opus-5-5":            usd(4, 20, 0.2, 5),
	"anthropic/claude-sonnet-4-5":          usd(3, 15, 0.3, 3.75),
	"anthropic/claude-sonnet-4-5-20250929": usd(3, 15, 0.3, 3.75),
	"anthropic/claude-sonnet-4-6":          usd(3, 15, 0.3, 3.75),
	"anthropic/claude-sonnet-5":            usd(2, 10, 0.2, 2.5),
	"openai/gpt-4.1":                       usd(2, 8, 0.5, 0),
	"openai/gpt-4.1-mini":                  usd(0.4, 1.6, 0.1, 0),
	"openai/gpt-4.1-nano":                  usd(0.1, 0.4, 0.025, 0),
	"openai/gpt-4o":                        usd(2.5, 10, 1.25, 0),
	"openai/gpt-4o-mini":                   usd(0.15, 0.6, 0.075, 0),
	"openai/gpt-5":                         usd(1.25, 10, 0.125, 0),
	"openai/gpt-5-chat-latest":             usd(1.25, 10, 0.125, 0),
	"openai/gpt-5-mini":                    usd(0.25, 2, 0.025, 0),
	"openai/gpt-5-nano":                    usd(0.05, 0.4, 0.005, 0),
	"openai/gpt-5-pro":                     usd(15, 120, 0, 0),
	"openai/gpt-5.1":                       usd(1.25, 10, 0.125, 0),
	"openai/gpt-5.2":                       usd(1.75, 14, 0.175, 0),
	"openai/gpt-5.2-chat-latest":           usd(1.75, 14, 0.175, 0),
	"openai/gpt-5.2-pro":                   usd(21, 168, 0, 0),
	"openai/gpt-5.3-chat-latest":           usd(1.75, 14, 0.175, 0),
	"openai/gpt-5.3-codex":                 usd(1.75, 14, 0.175, 0),
	"openai/gpt-5.3-codex-spark":           usd(1.75, 14, 0.175, 0),
	"openai/gpt-5.4":                       usd(2.5, 15, 0.25, 0),
	"openai/gpt-5.4-mini":                  usd(0.75, 4.5, 0.075, 0),
	"openai/gpt-5.4-nano":                  usd(0.2, 1.25, 0.02, 0),
	"openai/gpt-5.4-pro":                   usd(30, 180, 0, 0),
	"openai/gpt-5.5":                       usd(5, 30, 0.5, 0),
	"openai/gpt-5.5-pro":                   usd(30, 180, 0, 0),
	"openai/gpt-5.6-luna":                  usd(0.2, 1.2, 0.02, 0.25),
	"openai/gpt-5.6-sol":                   usd(4, 20, 0.4, 5),
	"openai/gpt-5.6-terra":                 usd(2, 12, 0.2, 2.5),
	"openai/gpt-6-astra":                   usd(10, 50, 1, 12.5),
	"openai/gpt-6-luna":                    usd(0.1, 0.5, 0.01, 0.125),
	"openai/gpt-6-sol":                     usd(2, 10, 0.2, 2.5),
	"openai/o1":                            usd(15, 60, 7.5, 0),
	"openai/o3":                            usd(2, 8, 0.5, 0),
	"openai/o3-mini":                       usd(1.1, 4.4, 0.55, 0),
	"openai/o3-pro":                        usd(20, 80, 0, 0),
	"openai/o4-mini":                       usd(1.1, 4.4, 0.275, 0),
}
