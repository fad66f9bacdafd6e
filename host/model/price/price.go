// Package price has the prices of models' tokens, and the cost of a request by them.
//
// Amounts are whole millionths of a dollar, and rounded up: sums of them never come below what was paid.
package price

import (
	"math"

	"arbe.0sk.ar/runner/host/model"
)

// Price has the prices of a million tokens of a model, in millionths of a dollar.
type Price struct {
	Input, Output, CacheRead, CacheWrite int64
}

// Micros returns dollars in millionths of a dollar.
func Micros(dollars float64) int64 { return int64(math.Round(dollars * million)) }

// Dollars returns millionths of a dollar in dollars.
func Dollars(micros int64) float64 { return float64(micros) / million }

const million = 1_000_000

// mostTokens bounds the tokens that are multiplied: what a provider counts is not ours.
const mostTokens = 1_000_000_000

// Cost returns the cost of a request, in millionths of a dollar.
func (p Price) Cost(u model.Usage) int64 {
	sum := int64(million - 1) // rounded up
	for _, x := range []struct{ tokens, price int64 }{
		{u.Input, p.Input}, {u.Output, p.Output}, {u.CacheRead, p.CacheRead}, {u.CacheWrite, p.CacheWrite},
	} {
		sum += min(max(x.tokens, 0), mostTokens) * x.price
	}
	return sum / million
}

// Most returns what a request costs at the most that has so many tokens, and whose reply may have so many: where the
// provider writes all of it into its cache, if that is dearer.
func (p Price) Most(context, output int64) int64 {
	p.Input = max(p.Input, p.CacheWrite)
	return p.Cost(model.Usage{Input: context, Output: output})
}
