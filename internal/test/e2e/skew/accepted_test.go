package skew_test

import (
	"slices"
	"strings"
)

// difference is one between two versions that is known and stays.
type difference struct {
	ref   string // the commit of the older version
	first string // which version is the first one of the pair: older or newer
	key   string // by which a cell asks for it
	shows string // what stands in the table
	why   string // it stays
}

// accepted are all of them. A listed difference that is not there any more is a fault, too.
var accepted = []difference{
	{
		ref: firstRef, first: "newer", key: keySchema, shows: "refused, status 78",
		why: "it was made before programs could tell which newer schema they can use, and refuses each",
	},
}

// known reports whether a difference of this pair is accepted. The cell then holds that it is just that.
func (p *pair) known(key string) bool {
	for _, d := range accepted {
		if d.of(p) && d.key == key {
			if !slices.Contains(p.shows, d.shows) {
				p.shows = append(p.shows, d.shows)
			}
			return true
		}
	}
	return false
}

// of reports whether a difference is one of a pair.
func (d difference) of(p *pair) bool {
	older, first := p.then, "newer"
	if p.first.old {
		older, first = p.first, "older"
	}
	return strings.HasPrefix(older.commit(), d.ref) && d.first == first
}
