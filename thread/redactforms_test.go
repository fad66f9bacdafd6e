package thread_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/thread"
)

// pem is a secret of several lines; the last one alone is too short to be one.
const pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nQg==\n" +
	"-----END PRIVATE KEY-----\n"

// oddSecrets are the environment of a run whose secrets are hard to find.
var oddSecrets = []string{
	"PEM_KEY=" + pem,
	"CRLF_KEY=first line of it\r\nsecond line of it\r\nxy\r\n",
	"SPACED_KEY=  \t spaces around it \n\n",
	"UNICODE_KEY=żółć–🙂-пароль",
	"JSON_KEY={\"type\":\"account\",\"private_key\":\"-----BEGIN-----\\nZmFrZSBrZXk\\n\",\"client_secret\": \"in<side> it\"}",
	"PRETTY_SECRET={\n  \"password\": \"hunter2 hunter2\",\n  \"n\": 12345678901\n}",
	"SHORT_TOKEN=prefixed-secret",
	"LONG_TOKEN=prefixed-secret-and-more",
	"BASE64_SECRET=c2VjcmV0/+c2VjcmV0==",
	"QUOTES_PASSWORD=p\"w\\d' $x\t<&>;",
	"SHELL_SECRET=a b\nc d\ne f\ng",
	"CONTROL_KEY=bell\a and \x1b[31mred\x7f",
}

// pieces returns what a text must not have of a secret: its value, its lines, and what it assigns to marked names.
func pieces(value string) []string {
	all := []string{strings.TrimSpace(value)}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= thread.MinSecret {
			all = append(all, line)
		}
	}
	var object map[string]any
	if json.Unmarshal([]byte(value), &object) == nil {
		for _, name := range []string{"private_key", "client_secret", "password"} {
			if text, is := object[name].(string); is {
				all = append(all, strings.TrimSpace(text))
			}
		}
	}
	return all
}

// written are the ways in which tools print a value.
var written = map[string]func(string) string{
	"as it is":     func(s string) string { return s },
	"with LF":      func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") },
	"with CRLF":    func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n") },
	"indented":     func(s string) string { return "    " + strings.ReplaceAll(s, "\n", "\n    ") },
	"in a shell":   func(s string) string { return strings.Join(strings.Fields(s), " ") },
	"as JSON":      func(s string) string { return string(thread.Marshal(s)) },
	"JSON in JSON": func(s string) string { return string(thread.Marshal(string(thread.Marshal(s)))) },
	"as HTML-safe JSON": func(s string) string {
		b, _ := json.Marshal(s)
		return string(b)
	},
	"as Python's JSON": func(s string) string {
		var b strings.Builder
		for _, c := range string(thread.Marshal(s)) {
			switch {
			case c < 0x7f:
				b.WriteRune(c)
			case c > 0xffff:
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
			default:
				fmt.Fprintf(&b, `\u%04x`, c)
			}
		}
		return b.String()
	},
	"quoted by Go": strconv.Quote,
}

// No piece of a secret is left of a text, however a tool writes it and wherever the text is cut into parts. The text
// around it stays.
func TestRedactorForms(t *testing.T) {
	r := thread.NewRedactor(oddSecrets, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, secret := range oddSecrets {
		name, value, _ := strings.Cut(secret, "=")
		for _, piece := range pieces(value) {
			for way, write := range written {
				if name == "SHELL_SECRET" && way == "indented" {
					continue // its lines are too short to be secrets
				}
				text := "before|" + write(piece) + "|behind"
				clean := r.Text(text)
				for _, left := range pieces(piece) {
					if strings.Contains(clean, write(left)) {
						t.Errorf("%s, %s: %q is left in %q", name, way, left, clean)
					}
				}
				if !strings.HasPrefix(clean, "before|") || !strings.HasSuffix(clean, "|behind") ||
					!strings.Contains(clean, "[redacted:") {
					t.Errorf("%s, %s: %q became %q", name, way, text, clean)
				}
				for range 20 {
					parts := r.Parts()
					got := ""
					for rest := []byte(text); len(rest) > 0; {
						n := 1 + rng.IntN(min(len(rest), 40))
						got += parts.Next(rest[:n])
						rest = rest[n:]
					}
					if got += parts.Rest(); got != clean {
						t.Fatalf("%s, %s: in parts %q, whole %q", name, way, got, clean)
					}
				}
			}
		}
	}
}

// What is around a secret, or looks like a part of one, stays.
func TestRedactorLeaves(t *testing.T) {
	r := thread.NewRedactor(append([]string{
		"RULER_KEY=some text here\n--------------------\n  12345678901\n",
		"REFERENCES_KEY=api_key: $HOME_SWEET_HOME\ntoken=ANTHROPIC_API_KEY",
		"BLANK_KEY=" + strings.Repeat(" ", 40), "MODEL_KEY={\"model\":\"model-of-it\",\"keys\":[]}",
	}, oddSecrets...), nil)
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
	r := thread.NewRedactor([]string{"LONG_KEY=" + string(long)}, nil)
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
	r := &thread.Redactor{}
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
		r := thread.NewRedactor(environ, nil)
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
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog, and says: func main() {\n\treturn\n}\n", 800))
	for _, n := range []int{3, 300, 3000} {
		var environ []string
		for i := range n {
			environ = append(environ, fmt.Sprintf("K%d_KEY=%016x-%d", i, uint64(i+1)*0x9e3779b97f4a7c15, i))
		}
		r := thread.NewRedactor(environ, nil)
		b.Run(fmt.Sprintf("secrets=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Bytes(text)
			}
		})
	}
}
