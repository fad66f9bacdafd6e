package redact_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/internal/test/oddsecrets"
	"arbe.0sk.ar/runner/thread/redact"
)

// No piece of a secret is left of a text, however a tool writes it and wherever the text is cut into parts. The text
// around it stays.
func TestRedactorForms(t *testing.T) {
	r := redact.New(oddsecrets.Environ(), nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, secret := range oddsecrets.Environ() {
		name, value, _ := strings.Cut(secret, "=")
		for _, piece := range oddsecrets.Pieces(value) {
			for way, write := range oddsecrets.Ways {
				text := "before|" + write(piece) + "|behind"
				clean := r.Text(text)
				if left := oddsecrets.Left(clean); left != nil {
					t.Errorf("%s, %s: %q is left in %q", name, way, left, clean)
				}
				if !strings.HasPrefix(clean, "before|") || !strings.HasSuffix(clean, "|behind") ||
					!strings.Contains(clean, "[redacted:") {
					t.Errorf("%s, %s: %q became %q", name, way, text, clean)
				}
				inParts(t, r, text, rng)
			}
		}
	}
	all := oddsecrets.All() + indented(oddsecrets.All())
	if left := oddsecrets.Left(r.Text(all)); left != nil {
		t.Errorf("left: %q", left)
	}
	inParts(t, r, all, rng)
}

func indented(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }

// inParts checks that a text that comes in parts is redacted as the whole is.
func inParts(t *testing.T, r *redact.Redactor, text string, rng *rand.Rand) {
	t.Helper()
	for range 20 {
		parts, got := r.Parts(), ""
		for rest := []byte(text); len(rest) > 0; {
			n := 1 + rng.IntN(min(len(rest), 40))
			got, rest = got+parts.Next(rest[:n]), rest[n:]
		}
		if got += parts.Rest(); got != r.Text(text) {
			t.Fatalf("in parts %q, whole %q", got, r.Text(text))
		}
	}
}

// What is around a secret, or looks like a part of one, stays.
func TestRedactorLeaves(t *testing.T) {
	r := redact.New(append([]string{
		"RULER_KEY=some text here\n--------------------\n  12345678901\n",
		"REFERENCES_KEY=api_key: $HOME_SWEET_HOME\ntoken=ANTHROPIC_API_KEY",
		"BLANK_KEY=" + strings.Repeat(" ", 40), "MODEL_KEY={\"model\":\"model-of-it\",\"keys\":[]}",
	}, oddsecrets.Environ()...), nil)
	for _, text := range []string{
		"|--------------------|", "12345678901", strings.Repeat(" ", 60), "ANTHROPIC_API_KEY", "$HOME_SWEET_HOME",
		"model-of-it", "Qg==", "prefixed-secre", "-----BEGIN", "",
	} {
		if got := r.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// A secret that is longer than what is looked for in one piece is found in parts.
func TestRedactorLong(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	long := make([]byte, 100<<10)
	for i := range long {
		long[i] = byte('!' + rng.IntN(90))
	}
	r := redact.New([]string{"LONG_KEY=" + string(long)}, nil)
	parts := r.Parts()
	got := parts.Next([]byte("x" + string(long[:50<<10])))
	got += parts.Next([]byte(string(long[50<<10:]) + "y"))
	if got += parts.Rest(); strings.Trim(strings.ReplaceAll(got, "[redacted:LONG_KEY]", ""), "xy") != "" {
		t.Errorf("%d bytes are left: %.200q", len(got), got)
	}
}

// A file's lines and values are secrets.
func TestRedactorFileOfLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".env")
	const content = "# my settings\nURL=https://example.org\nAPI_TOKEN='one two three'\nDB_PASSWORD=abcdefgh12\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &redact.Redactor{}
	r.AddFile(".env", path)
	for in, want := range map[string]string{
		"it is one two three.":           "it is [redacted:.env].",
		"psql -W abcdefgh12":             "psql -W [redacted:.env]",
		"cat: URL=https://example.org\n": "cat: [redacted:.env]\n",
		content:                          "[redacted:.env]\n",
		"https://example.org":            "https://example.org",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// The search for many secrets finds what a look for each of them at each place finds.
func TestRedactorMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[rng.IntN(3)]
		}
		return string(b)
	}
	for range 300 {
		var environ, values []string
		for i := range 1 + rng.IntN(20) {
			values = append(values, word(8+rng.IntN(6)))
			environ = append(environ, fmt.Sprintf("N%d_KEY=%s", i, values[i]))
		}
		r := redact.New(environ, nil)
		for range 20 {
			text := word(rng.IntN(100))
			clean := r.Text(text)
			has := false
			for _, v := range values {
				if has = has || strings.Contains(text, v); strings.Contains(clean, v) {
					t.Fatalf("%q is left in %q, which was %q", v, clean, text)
				}
			}
			if !has && clean != text {
				t.Fatalf("%q became %q", text, clean)
			}
		}
	}
}

// BenchmarkRedact looks for secrets in a text that has none.
func BenchmarkRedact(b *testing.B) {
	const line = "The quick brown fox jumps over the lazy dog, and says: func main() {\n\treturn\n}\n"
	text := []byte(strings.Repeat(line, 800))
	for _, n := range []int{3, 300, 3000} {
		var environ []string
		for i := range n {
			environ = append(environ, fmt.Sprintf("K%d_KEY=%016x-%d", i, uint64(i+1)*0x9e3779b97f4a7c15, i))
		}
		r := redact.New(environ, nil)
		b.Run(fmt.Sprintf("secrets=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Bytes(text)
			}
		})
	}
}
