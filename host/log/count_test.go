package log

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"arbe.0sk.ar/runner/internal/jsonscan"
	"arbe.0sk.ar/runner/thread"
)

func TestCountElements(t *testing.T) {
	for _, tt := range []struct {
		body string
		want int
	}{
		{`[]`, 0},
		{`[ ]`, 0},
		{`[1]`, 1},
		{`[1,2]`, 2},
		{`[{},{},[]]`, 3},
		{`[[1,2,3],{"a":[1,2],"b":","}]`, 2},
		{`["a,b","]","\",",4]`, 4},
		{`[`, 0},
		{`[}`, 1},
		{`[,`, 2},
		{`["`, 1},
		{`[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]`, 11},
	} {
		if got := countElements([]byte(tt.body), 10); got != tt.want {
			t.Errorf("%s has %d elements, want %d", tt.body, got, tt.want)
		}
	}
}

func FuzzCountElements(f *testing.F) {
	f.Add([]byte(`[1,{"a":[2,3]},"]"]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || b[0] != '[' {
			return
		}
		got := countElements(b, 1<<20)
		if !json.Valid(b) {
			return
		}
		want := 0
		jsonscan.Elements(b, func([]byte) { want++ })
		if got != want {
			t.Errorf("%q has %d elements, counted %d", b, want, got)
		}
	})
}

// allocated is how many bytes f allocates: more than it ever holds.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What is built of a body takes less than 3 times the body and 8 MiB, whatever is in it. The body itself makes it 4
// times.
func TestLargeBodyInLittleMemory(t *testing.T) {
	fill := func(element string, size int) []byte {
		return []byte("[" + strings.Repeat(element+",", size/(len(element)+1)) + element + "]")
	}
	entry := func(i int, payload string) string {
		return fmt.Sprintf(
			`{"id":"e%d","ts":"2026-01-01T00:00:00.000Z","payload":{"type":"chat","text":%s}}`,
			i,
			payload,
		)
	}
	var many []string
	for i := range thread.MaxEntries {
		many = append(many, entry(i, fmt.Sprintf("%q", strings.Repeat("x", 16<<10))))
	}
	asEntries := func(b []byte) error { _, err := ParseEntries(b, Writer{}); return err }
	asMessages := func(b []byte) error { _, err := cut(typeJSON, b, false); return err }
	asBytes := func(b []byte) error { _, err := cut("text/plain", b, false); return err }
	for _, tt := range []struct {
		name  string
		body  []byte
		parse func([]byte) error
		want  any // a pointer to the type of its error; nil: it is taken
	}{
		{"objects for entries", fill(`{}`, 16<<20), asEntries, new(*CountError)},
		{"numbers for entries", fill(`1`, 16<<20), asEntries, new(*CountError)},
		{"numbers, and no end", fill(`1`, 4<<20)[:4<<20], asEntries, new(*SyntaxError)},
		{"arrays in an entry", []byte(`{"id":"a","x":` + string(fill(`[]`, 4<<20)) + `}`), asEntries, new(*EntriesError)},
		{
			"members in an entry", []byte(`{"id":"a"` + strings.Repeat(`,"a":1`, 1<<20) + `}`), asEntries,
			new(*EntriesError),
		},
		{"as many entries as there may be", []byte("[" + strings.Join(many, ",") + "]"), asEntries, nil},
		{
			"one too many", []byte("[" + strings.Join(append(many, "{}"), ",") + "]"), asEntries,
			new(*CountError),
		},
		{"a large entry", []byte(entry(1, `"`+strings.Repeat("x", thread.MaxEntry-1<<11)+`"`)), asEntries, nil},
		{"objects for messages", fill(`{}`, 16<<20), asMessages, new(*CountError)},
		{"numbers for messages", fill(`1`, 2<<20), asMessages, new(*CountError)},
		{"as many messages as there may be", fill(`1`, 2*(MaxMessages-1)), asMessages, nil},
		{"a large message", fill(`1`, thread.MaxEntry), func(b []byte) error {
			return asMessages([]byte("[" + string(b) +
				"]"))
		}, new(*SizeError)},
		{"bytes", bytes.Repeat([]byte("\n"), 32<<20), asBytes, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			took := allocated(func() { err = tt.parse(tt.body) })
			if tt.want == nil && err != nil || tt.want != nil && !errors.As(err, tt.want) {
				t.Errorf("got %v, want %T", err, tt.want)
			}
			if most := uint64(3*len(tt.body) + 8<<20); took > most {
				t.Errorf("%d bytes were allocated for a body of %d, want %d at most", took, len(tt.body), most)
			}
		})
	}
}

// Text is cut between characters and line ends, and is the same when it is put together.
func TestCutBytes(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("x", pieceBytes), strings.Repeat("x", pieceBytes+1), strings.Repeat("ü", 2*pieceBytes), "x" +
			strings.Repeat("ü", 2*pieceBytes),
		strings.Repeat("\r\n", 2*pieceBytes), "x" + strings.Repeat("\r\n", 2*pieceBytes), "xy" + strings.Repeat("𝄞",
			pieceBytes), strings.Repeat("\x80", 3*pieceBytes),
	} {
		records, err := cut("text/plain", []byte(text), false)
		if err != nil {
			t.Fatal(err)
		}
		var whole []byte
		for i, r := range records {
			if len(r.Data) == 0 || len(r.Data) > pieceBytes || utf8.ValidString(text) && !utf8.Valid(r.Data) ||
				i > 0 &&
					r.Data[0] == '\n' {
				t.Errorf("a piece of %d bytes of %.10q", len(r.Data), text)
			}
			whole = append(whole, r.Data...)
		}
		if string(whole) != text {
			t.Errorf("%.10q is not the same", text)
		}
	}
}
