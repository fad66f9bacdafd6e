package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"arbe.0sk.ar/runner/host/rows"
)

// caps are the limits of an answer.
func caps(c *rows.Caps) map[string]field {
	return map[string]field{
		"rounds":       number(&c.Rounds, 0, maxCount),
		"calls":        number(&c.Calls, 0, maxCount),
		"wallMs":       number(&c.WallMs, 0, maxWall),
		"outputTokens": number(&c.OutputTokens, 1, maxOutput),
		"tokens":       number(&c.Tokens, 0, maxTokens),
		"cost":         dollars(&c.Cost, maxCost),
	}
}

// prices reads the prices of a provider's models.
func prices(to *map[string]rows.Price) field {
	read := named(to, namePattern, wantName, func(p *rows.Price) map[string]field {
		return map[string]field{
			"input": dollars(&p.Input, maxCost), "output": dollars(&p.Output, maxCost),
			"cacheRead": dollars(&p.CacheRead, maxCost), "cacheWrite": dollars(&p.CacheWrite, maxCost),
		}
	})
	return func(data json.RawMessage, at string) error {
		if err := read(data, at); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(*to)) {
			if p := (*to)[name]; p.Input == nil || p.Output == nil {
				return refusal(at+"."+name, "want input and output")
			}
		}
		return nil
	}
}

// dollars reads an amount of money.
func dollars(to **float64, most float64) field {
	want := fmt.Sprintf("want US dollars from 0 to %.0f", most)
	return func(data json.RawMessage, at string) error {
		v, err := value[float64](data, at, want)
		if err == nil && (v < 0 || v > most) {
			err = refusal(at, want)
		}
		*to = &v
		return err
	}
}
