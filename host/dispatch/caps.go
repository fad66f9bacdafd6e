package dispatch

import (
	"encoding/json"
	"time"

	"arbe.0sk.ar/runner/host/model/price"
	"arbe.0sk.ar/runner/host/rows"
)

// Caps bound a reaction. Once one is reached, the model is asked for its answer without tools. Cost holds the requests
// before that: the last one may go above it.
type Caps struct {
	Rounds int // that may call tools
	Calls  int
	Wall   time.Duration // since the first claim
	Output int           // tokens of one reply
	Tokens int64         // of all requests and replies
	Cost   int64         // millionths of a dollar
}

// usual are the caps where neither the house nor the member has others.
var usual = rows.Caps{
	Rounds: new(int64(25)), Calls: new(int64(50)), WallMs: new((15 * time.Minute).Milliseconds()),
	OutputTokens: new(int64(8_000)), Tokens: new(int64(500_000)), Cost: new(float64(1)),
}

// CapsOf returns caps; of what is not set, the usual ones.
func CapsOf(set rows.Caps) Caps {
	c := set.Or(usual)
	return Caps{
		Rounds: int(*c.Rounds), Calls: int(*c.Calls), Wall: time.Duration(*c.WallMs) * time.Millisecond,
		Output: int(*c.OutputTokens), Tokens: *c.Tokens, Cost: price.Micros(*c.Cost),
	}
}

// caps returns the caps of the first claim, which hold for all holders.
func (j *Journal) caps() Caps {
	var c rows.Caps
	if json.Unmarshal(j.Begun.Caps, &c) != nil { // of a host that had no others
		c = rows.Caps{}
	}
	return CapsOf(c)
}
