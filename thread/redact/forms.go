package redact

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"

	"arbe.0sk.ar/runner/thread"
)

// maxForm is the length above which a form of a secret is looked for in parts. It bounds what Ready holds back.
const maxForm = 16 << 10

var (
	numberForm = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$`)
	// assigned finds what a text in JSON, YAML, TOML, an .ini or .env file or the like assigns to a name.
	assigned = regexp.MustCompile(`([A-Za-z0-9_.-]+)["']?[ \t]*[=:][ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"']+)`)
	// reference is the name of a variable in place of a value.
	reference = regexp.MustCompile(`^\$|^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)
)

// appendSecrets appends what is looked for of a value: the value, and what it assigns to names that mark secrets.
func appendSecrets(to []secret, name, value string) []secret {
	to = appendText(to, name, value)
	for _, match := range assigned.FindAllStringSubmatch(value, -1) {
		if text := unquoted(match[2]); marksSecret(match[1]) && !reference.MatchString(text) {
			to = appendText(to, name, text)
		}
	}
	return to
}

// appendText appends a text, also with other white space around and in it, as a tool may print it, and its lines.
func appendText(to []secret, name, text string) []secret {
	add := func(text string) {
		if plain := strings.TrimSpace(text); len(text) < MinSecret || plain == "" || numberForm.MatchString(plain) {
			return
		}
		for _, form := range formsOf(text) {
			for ; len(form) >= maxForm+MinSecret; form = form[maxForm:] {
				to = append(to, secret{name, form[:maxForm]})
			}
			to = append(to, secret{name, form})
		}
	}
	add(text)
	text = strings.TrimSpace(text)
	add(text)
	add(strings.Join(strings.Fields(text), " ")) // by a shell, without quotes
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
	if len(lines) < 2 {
		return to
	}
	plain := strings.ReplaceAll(text, "\r\n", "\n")
	add(plain)
	add(strings.ReplaceAll(plain, "\n", "\r\n"))
	for _, line := range lines {
		if strings.ContainsFunc(line, wordly) { // a ruler is no secret
			add(strings.TrimSpace(line))
		}
	}
	return to
}

func wordly(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// unquoted returns the value of an assignment without its quotes, or without what may separate it from the next one.
func unquoted(text string) string {
	var plain string
	switch {
	case text[0] == '"' && json.Unmarshal([]byte(text), &plain) == nil:
		return plain
	case text[0] == '"' || text[0] == '\'':
		return text[1 : len(text)-1]
	}
	return strings.TrimRight(text, ",;)]}")
}

// formsOf returns the forms of a text: itself and, for a tool may print its configuration, as a string of JSON, also of
// JSON in a string of JSON, and of Go. Some encoders of JSON escape <, > and &, some all but ASCII.
func formsOf(text string) []string {
	plain := string(thread.Marshal(text))
	html, _ := json.Marshal(text) // a string always marshals
	inner := plain[1 : len(plain)-1]
	forms := []string{text}
	for _, quoted := range []string{
		plain, string(html), asciiOf(plain), string(thread.Marshal(inner)), strconv.Quote(text),
	} {
		forms = append(forms, quoted[1:len(quoted)-1])
	}
	return forms
}

// asciiOf returns a string of JSON with all but ASCII escaped.
func asciiOf(quoted string) string {
	var b []byte
	for _, c := range quoted {
		if c < 0x7f {
			b = append(b, byte(c))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, c) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	return string(b)
}
