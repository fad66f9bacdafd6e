package redact_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/redact"
)

func TestRedactor(t *testing.T) {
	r := redact.New([]string{
		"API_KEY=abcdefgh", "my_token=tttttttt", "DB_PASSWORD=p\"w\\d\n<1>", "PLAIN=not-a-secret", "EXTRA=extra-secret",
		"SHORT_KEY=abc", "NUMBER_KEY=123456789", "FLOAT_KEY=-1234.5e67", "BOOL_KEY=true",
		"LONG_SECRET=abcdefgh-and-more", "EMPTY_KEY=", "ODD_KEY",
	}, []string{"EXTRA"})
	for in, want := range map[string]string{
		"nothing here":                    "nothing here",
		"abcdefgh":                        "[redacted:API_KEY]",
		"xabcdefghyabcdefghz":             "x[redacted:API_KEY]y[redacted:API_KEY]z",
		"tttttttttt":                      "[redacted:my_token]",
		"abcdefgh-and-more":               "[redacted:LONG_SECRET]",
		"abcdefgh-and-less":               "[redacted:API_KEY]-and-less",
		"not-a-secret extra-secret":       "not-a-secret [redacted:EXTRA]",
		"abc 123456789 -1234.5e67 true":   "abc 123456789 -1234.5e67 true",
		"p\"w\\d\n<1>":                    "[redacted:DB_PASSWORD]",
		`{"db":"p\"w\\d\n<1>"}`:           `{"db":"[redacted:DB_PASSWORD]"}`,
		`{"db":"p\"w\\d\n\u003c1\u003e"}`: `{"db":"[redacted:DB_PASSWORD]"}`,
	} {
		if got := r.Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// Secrets that overlap leave nothing of either.
func TestRedactorOverlap(t *testing.T) {
	r := redact.New([]string{"A_KEY=12345678abcd", "B_KEY=abcdefghijklmn"}, nil)
	if got, want := r.Text("x12345678abcdefghijklmny"), "x[redacted:B_KEY]y"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzRedact: no byte of a secret's occurrence is left, in plain text or in JSON, and the rest stays.
func FuzzRedact(f *testing.F) {
	f.Add("before ", "sec\"ret\\value", " after", "another-secret")
	f.Add("", "aaaaaaaaaaaa", "a", "aaaaaaaaaa")
	f.Add("x", "\n\t\r\u2028<&>", "é", "é\u2028éééé")
	f.Fuzz(func(t *testing.T, before, one, after, two string) {
		r := redact.New([]string{"ONE_KEY=" + one, "TWO_KEY=" + two}, nil)
		secret := func(s string) bool { return redact.New([]string{"X_KEY=" + s}, nil).Text(s) != s }
		text := before + one + after + two
		got := r.Text(text)
		if !secret(one) && !secret(two) && got != text {
			t.Fatalf("%q became %q without a secret", text, got)
		}
		// The marks themselves may spell a secret, if somebody's secret is made of their letters.
		marks := strings.NewReplacer("[redacted:ONE_KEY]", "\x00", "[redacted:TWO_KEY]", "\x00").Replace(got)
		for _, s := range []string{one, two} {
			if secret(s) && strings.Contains(marks, s) && !strings.Contains(s, "\x00") {
				t.Fatalf("%q is left in %q", s, got)
			}
		}
		// A text that holds JSON that holds the secret.
		for _, s := range []string{one, two} {
			quoted := string(thread.Marshal(s))
			inner := quoted[1 : len(quoted)-1]
			if clean := r.Text(quoted); secret(s) && utf8.ValidString(s) && strings.Contains(clean, inner) &&
				!strings.Contains("[redacted:ONE_KEY][redacted:TWO_KEY]", inner) {
				t.Fatalf("%q is left in %q", s, clean)
			}
		}
	})
}

// What a file with a secret becomes is a secret, too, and what it was stays one, however the file is written.
func TestRedactorFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	r := redact.New([]string{"A_KEY=abcdefgh"}, nil)
	r.AddFile("TOKEN", path)
	write := func(value string) {
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace := func(value string) {
		if err := os.WriteFile(path+".new", []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	for i := range 40 {
		value := fmt.Sprintf("rotated-<%02d>", i) // of one length, and within one tick of the file's clock
		if i%2 == 0 {
			write(value)
		} else {
			replace(value)
		}
		r.Refresh()
		for _, v := range append(all, value) {
			if got, want := r.Text("it is "+v+", abcdefgh"), "it is [redacted:TOKEN], [redacted:A_KEY]"; got != want {
				t.Fatalf("after %d rotations %q became %q", i, v, got)
			}
		}
		all = append(all, value)
	}
	if got, want := r.Text(`{"token":"rotated-\u003c07\u003e"}`), `{"token":"[redacted:TOKEN]"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if r.Refresh(); r.Text(all[39]) != "[redacted:TOKEN]" {
		t.Error("forgotten with its file")
	}
}

// A file that is replaced for ever does not fill the memory.
func TestRedactorFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	r := redact.New([]string{"A_KEY=abcdefgh"}, nil)
	r.AddFile("TOKEN", path)
	for i := range 300 {
		if err := os.WriteFile(path, fmt.Appendf(nil, "rotated-%03d", i), 0o600); err != nil {
			t.Fatal(err)
		}
		r.Refresh()
	}
	if got := r.Text("rotated-000 rotated-299 abcdefgh"); got != "rotated-000 [redacted:TOKEN] [redacted:A_KEY]" {
		t.Errorf("got %s", got)
	}
}
