package log

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"arbe.0sk.ar/runner/internal/jsonscan"
)

// equalJSON reports whether two JSON texts have the same value: members in any order, numbers by value (1 is 1.0),
// strings decoded. An object that has a name twice equals one that has it as often, with equal values in the same
// order.
//
// It walks both texts side by side and builds nothing of them. Where the members of two objects are in different
// orders, it sorts them, at 8 bytes a member. Finding the members takes a scan of the object for each such object
// around it. Where the scans exceed maxLooks times the texts, the texts count as different.
func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	c := comparison{a: a, b: b, looks: maxLooks * (len(a) + len(b))}
	i, j := jsonscan.Space(a, 0), jsonscan.Space(b, 0)
	i, j, ok := c.value(i, j)
	return ok && i >= 0 && j >= 0
}

// maxLooks exceeds the depth of objects that programs write.
const maxLooks = 64

// comparison compares the JSON texts a and b.
type comparison struct {
	a, b  []byte
	looks int // bytes that may still be scanned for members
}

// value compares the values at i in a and at j in b, and returns the offsets after them.
func (c *comparison) value(i, j int) (int, int, bool) {
	if i >= len(c.a) || j >= len(c.b) {
		return i, j, false
	}
	x, y := c.a[i], c.b[j]
	switch {
	case x == '{' && y == '{':
		return c.object(i, j)
	case x == '[' && y == '[':
		return c.array(i, j)
	case x == '"' && y == '"':
		iEnd, jEnd := jsonscan.SkipString(c.a, i), jsonscan.SkipString(c.b, j)
		return iEnd, jEnd, equalStrings(c.a[i:iEnd], c.b[j:jEnd])
	case isNumber(x) && isNumber(y):
		iEnd, jEnd := jsonscan.Skip(c.a, i), jsonscan.Skip(c.b, j)
		return iEnd, jEnd, equalNumbers(string(c.a[i:iEnd]), string(c.b[j:jEnd]))
	case x != y || strings.IndexByte("tfn", x) < 0:
		return i, j, false
	}
	return jsonscan.Skip(c.a, i), jsonscan.Skip(c.b, j), true
}

func isNumber(c byte) bool { return c == '-' || c >= '0' && c <= '9' }

// next returns the offset of the element or member after the one that ends at i; false and the offset after the array
// or object where there is none.
func next(b []byte, i int) (int, bool) {
	i = jsonscan.Space(b, i)
	if i < len(b) && b[i] == ',' {
		return jsonscan.Space(b, i+1), true
	}
	return i + 1, false
}

// first returns the offset of the first element or member of the array or object at i, as next does.
func first(b []byte, i int) (int, bool) {
	i = jsonscan.Space(b, i+1)
	if i < len(b) && (b[i] == ']' || b[i] == '}') {
		return i + 1, false
	}
	return i, true
}

func (c *comparison) array(i, j int) (int, int, bool) {
	i, moreA := first(c.a, i)
	j, moreB := first(c.b, j)
	for moreA && moreB {
		var ok bool
		if i, j, ok = c.value(i, j); !ok {
			return i, j, false
		}
		i, moreA = next(c.a, i)
		j, moreB = next(c.b, j)
	}
	return i, j, !moreA && !moreB
}

// object compares two objects member by member, and sorts them where their names are in different orders.
func (c *comparison) object(i, j int) (int, int, bool) {
	fromA, fromB := i, j
	i, moreA := first(c.a, i)
	j, moreB := first(c.b, j)
	for moreA && moreB {
		iEnd, jEnd := jsonscan.SkipString(c.a, i), jsonscan.SkipString(c.b, j)
		if !equalStrings(c.a[i:iEnd], c.b[j:jEnd]) {
			return c.sorted(fromA, fromB)
		}
		var ok bool
		if i, j, ok = c.value(afterColon(c.a, iEnd), afterColon(c.b, jEnd)); !ok {
			return i, j, false
		}
		i, moreA = next(c.a, i)
		j, moreB = next(c.b, j)
	}
	return i, j, !moreA && !moreB
}

// afterColon returns the offset of the value whose name ends at i.
func afterColon(b []byte, i int) int { return jsonscan.Space(b, jsonscan.Space(b, i)+1) }

// sorted compares the sorted members of two objects.
func (c *comparison) sorted(i, j int) (int, int, bool) {
	namesA, endA := c.members(c.a, i)
	namesB, endB := c.members(c.b, j)
	if c.looks < 0 || len(namesA) != len(namesB) {
		return endA, endB, false
	}
	for k := range namesA {
		a, b := namesA[k].at(), namesB[k].at()
		aEnd, bEnd := jsonscan.SkipString(c.a, a), jsonscan.SkipString(c.b, b)
		if !equalStrings(c.a[a:aEnd], c.b[b:bEnd]) {
			return endA, endB, false
		}
		if _, _, ok := c.value(afterColon(c.a, aEnd), afterColon(c.b, bEnd)); !ok {
			return endA, endB, false
		}
	}
	return endA, endB, true
}

// member is a member of an object: a hash of its name, and the offset where it begins.
type member uint64

func (m member) hash() uint32 { return uint32(m >> 32) }
func (m member) at() int      { return int(uint32(m)) }

// memberSeed keeps clients from making names with equal hashes.
var memberSeed = maphash.MakeSeed()

// members returns the members of the object at i, sorted by name and then by offset, and the offset after the object.
func (c *comparison) members(b []byte, i int) (members []member, end int) {
	from := i
	i, more := first(b, i)
	for more && c.looks >= i-from {
		nameEnd := jsonscan.SkipString(b, i)
		hash := maphash.Bytes(memberSeed, b[i+1:nameEnd-1])
		if name := b[i:nameEnd]; !plain(name) {
			hash = maphash.String(memberSeed, jsonscan.String(name))
		}
		members = append(members, member(hash>>32<<32|uint64(i)))
		i, more = next(b, jsonscan.Skip(b, afterColon(b, nameEnd)))
	}
	c.looks -= i - from
	slices.Sort(members)
	for from := 0; from < len(members); {
		to := from + 1
		for to < len(members) && members[to].hash() == members[from].hash() {
			to++
		}
		if to-from > 1 {
			byName := func(x, y member) int { return compareStrings(b[x.at():], b[y.at():]) }
			slices.SortStableFunc(members[from:to], byName)
		}
		from = to
	}
	if more { // the budget of scans is spent
		c.looks = -1
	}
	return members, i
}

// compareStrings compares the strings that x and y begin with.
func compareStrings(x, y []byte) int {
	x, y = x[:jsonscan.SkipString(x, 0)], y[:jsonscan.SkipString(y, 0)]
	if plain(x) && plain(y) {
		return bytes.Compare(x[1:len(x)-1], y[1:len(y)-1])
	}
	return strings.Compare(jsonscan.String(x), jsonscan.String(y))
}

func plain(s []byte) bool { return bytes.IndexByte(s, '\\') < 0 }

// equalStrings compares two JSON strings by value.
func equalStrings(x, y []byte) bool {
	return bytes.Equal(x, y) || !(plain(x) && plain(y)) && jsonscan.String(x) == jsonscan.String(y)
}

// equalNumbers compares two JSON numbers by value.
func equalNumbers(x, y string) bool {
	if x == y {
		return true
	}
	a, okA := parseNumber(x)
	b, okB := parseNumber(y)
	return okA && okB && a == b
}

// number is 0.digits times ten to the power exponent. Its digits begin and end with other digits than 0; those of 0 are
// "".
type number struct {
	negative bool
	digits   string
	exponent int64
}

// parseNumber parses a JSON number; false for an exponent of more than 17 digits, which is compared as text.
func parseNumber(s string) (n number, ok bool) {
	s, n.negative = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if n.exponent, err = strconv.ParseInt(s[i+1:], 10, 64); err != nil || n.exponent > 1e17 ||
			n.exponent < -1e17 {
			return n, false
		}
		s = s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n.exponent += int64(len(whole))
	digits := whole
	if fraction != "" {
		digits += fraction
	}
	leading := len(digits) - len(strings.TrimLeft(digits, "0"))
	n.exponent -= int64(leading)
	n.digits = strings.TrimRight(digits[leading:], "0")
	if n.digits == "" {
		return number{}, true // -0 is 0
	}
	return n, true
}
