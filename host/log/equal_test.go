package log

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestEqualJSON(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{`{}`, `{ }`, true},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":1,"b":2}`, `{"a":1}`, false},
		{`{"a":{"x":[1,2],"y":null}, "b":true}`, `{"b": true,"a":{"y":null,"x":[ 1 , 2 ]}}`, true},
		{`{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{`{"a":[1,2]}`, `{"a":[1]}`, false},
		{`{"a":[]}`, `{"a":[[]]}`, false},
		{`{"a":[]}`, `{"a":{}}`, false},
		{`{"a":"é"}`, `{"a":"\u00e9"}`, true},
		{`{"\u0061":1}`, `{"a":1}`, true},
		{`{"\u0061":1,"b":2}`, `{"b":2,"a":1}`, true},
		{`{"a":"1"}`, `{"a":1}`, false},
		{`{"a":1}`, `{"a":1.0}`, true},
		{`{"a":100}`, `{"a":1e2}`, true},
		{`{"a":0.010}`, `{"a":1E-2}`, true},
		{`{"a":-0}`, `{"a":0.0e5}`, true},
		{`{"a":1}`, `{"a":-1}`, false},
		{`{"a":12}`, `{"a":1.3e1}`, false},
		{`{"a":1e1000000}`, `{"a":10e999999}`, true},
		{`{"a":1e99999999999999999999}`, `{"a":10e99999999999999999998}`, false}, // as they are written
		{`{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{`{"a":true}`, `{"a":false}`, false},
		{`{"a":null}`, `{"a":true}`, false},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`, false},
		{`{"a":1,"b":3,"a":2}`, `{"b":3,"a":1,"a":2}`, true},
		{`{"a":1,"a":1}`, `{"a":1,"b":1}`, false},
		{`{"a":"x\"y","b":"]}"}`, `{"b":"]}","a":"x\"y"}`, true},
	} {
		for _, pair := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			if got := equalJSON([]byte(pair[0]), []byte(pair[1])); got != tt.want {
				t.Errorf("%s and %s: got %v", pair[0], pair[1], got)
			}
		}
	}
}

// A value is equal to itself, however it is spaced, and comparing any two texts ends.
func FuzzEqualJSON(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[1.50,{"z":"\u00e9","y":null}]}`, `[1,2,{}]`, `{"a":{"c":1,"b":2}}`} {
		f.Add([]byte(s), []byte(`{"a":[1.5,{"y":null,"z":"é"}],"b":1e0}`))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var spaced bytes.Buffer
		if json.Indent(&spaced, a, " ", "\t") != nil {
			return
		}
		if !equalJSON(a, spaced.Bytes()) || !equalJSON(spaced.Bytes(), a) {
			t.Errorf("%q is not equal to itself", a)
		}
		if json.Valid(b) && equalJSON(a, b) != equalJSON(b, a) {
			t.Errorf("%q and %q are equal one way only", a, b)
		}
	})
}

// Equality takes about as long as a copy does, whatever is compared, and next to no memory.
func TestLargeJSONComparedInLittleMemory(t *testing.T) {
	repeat := func(element string, size int) string { return strings.Repeat(element+",", size/len(element)) + element }
	spaced := func(s string) string { return strings.ReplaceAll(s, ",", " ,\n") }
	var names, reversed []string
	for i := range 300_000 {
		names = append(names, fmt.Sprintf(`"%06d":%d`, i, i))
	}
	for i := range names {
		reversed = append(reversed, names[len(names)-1-i])
	}
	deep := func(pair string) string {
		return strings.Repeat(pair, 50) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", 50)
	}
	for _, tt := range []struct{ name, a, b string }{
		{"arrays", `{"a":[` + repeat(`[]`, 4<<20) + `]}`, spaced(`{"a":[` + repeat(`[]`, 4<<20) + `]}`)},
		{"numbers", `{"a":[` + repeat(`1`, 2<<20) + `]}`, `{"a":[` + repeat(`1.0`, 6<<20) + `]}`},
		{"objects", `{"a":[` + repeat(`{}`, 4<<20) + `]}`, spaced(`{"a":[` + repeat(`{}`, 4<<20) + `]}`)},
		{"members in another order", "{" + strings.Join(names, ",") + "}", "{" + strings.Join(reversed, ",") + "}"},
		{"another order at each depth", deep(`{"x":1,"a":`), deep(`{"a":`)[:0] + reorder(50, `"`+strings.Repeat("x",
			1<<20)+`"`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := []byte(tt.a), []byte(tt.b)
			if !json.Valid(a) || !json.Valid(b) {
				t.Fatal("no JSON")
			}
			var equal bool
			began := time.Now()
			took := allocated(func() { equal = equalJSON(a, b) })
			t.Logf("%v, %d bytes for %d", time.Since(began), took, len(a)+len(b))
			if !equal {
				t.Error("they are not equal")
			}
			if took > uint64(3*(len(a)+len(b))) {
				t.Errorf("%d bytes were allocated for %d", took, len(a)+len(b))
			}
		})
	}
}

// reorder nests v in objects whose other member stands behind.
func reorder(depth int, v string) string {
	return strings.Repeat(`{"a":`, depth) + v + strings.Repeat(`,"x":1}`, depth)
}
