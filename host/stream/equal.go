package stream

import (
	"bytes"
	"encoding/json"
	"math/big"
	"strings"
)

// equalJSON reports whether two JSON texts say the same: members in any order, numbers by their value (1 is 1.0), strings decoded.
func equalJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return decodeNumbers(a, &x) && decodeNumbers(b, &y) && equalValues(x, y)
}

func decodeNumbers(raw []byte, v *any) bool {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return dec.Decode(v) == nil
}

func equalValues(x, y any) bool {
	switch x := x.(type) {
	case json.Number:
		y, ok := y.(json.Number)
		return ok && equalNumbers(string(x), string(y))
	case []any:
		y, ok := y.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equalValues(x[i], y[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if v, has := y[k]; !has || !equalValues(x[k], v) {
				return false
			}
		}
		return true
	default:
		return x == y
	}
}

// equalNumbers compares by value where that costs little. A number with a huge exponent is compared as it is written.
func equalNumbers(x, y string) bool {
	if x == y {
		return true
	}
	if len(x) > 64 || len(y) > 64 || hugeExponent(x) || hugeExponent(y) {
		return false
	}
	a, okA := new(big.Rat).SetString(x)
	b, okB := new(big.Rat).SetString(y)
	return okA && okB && a.Cmp(b) == 0
}

func hugeExponent(s string) bool {
	i := strings.IndexAny(s, "eE")
	return i >= 0 && len(strings.TrimLeft(s[i+1:], "+-0")) > 3
}
