package redact_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"arbe.0sk.ar/runner/thread/redact"
)

// A text that is redacted part by part, wherever it is cut, has no secret and no broken character in it.
func TestReady(t *testing.T) {
	secrets := []string{"A_KEY=abcabcabc", "B_KEY=cabcabcabcabcx", "C_KEY=żółćżółć", "D_KEY=0123456789abcdef"}
	r := redact.New(secrets, nil)
	pieces := []string{
		"abcabcabc", "cabcabcabcabcx", "żółćżółć", "0123456789abcdef", "abc", "ab", "żół", "ż", "\n", "x", "01234", "🙂",
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var whole strings.Builder
		for range 1 + rng.IntN(8) {
			whole.WriteString(pieces[rng.IntN(len(pieces))])
		}
		text := []byte(whole.String())
		var out []string
		var held []byte
		for len(text) > 0 {
			n := 1 + rng.IntN(len(text))
			held, text = append(held, text[:n]...), text[n:]
			k := r.Ready(held)
			out = append(out, r.Text(string(held[:k])))
			held = held[k:]
		}
		out = append(out, r.Text(string(held)))
		got := strings.Join(out, "")
		for _, s := range secrets {
			_, value, _ := strings.Cut(s, "=")
			if strings.Contains(got, value) {
				t.Fatalf("%q: %q has the secret %s", whole.String(), out, value)
			}
		}
		for _, piece := range out {
			if !utf8.ValidString(piece) {
				t.Fatalf("%q: piece %q is no UTF-8", whole.String(), piece)
			}
		}
		if want := r.Text(whole.String()); got != want {
			t.Fatalf("%q: got %q, want %q", whole.String(), got, want)
		}
	}
}
