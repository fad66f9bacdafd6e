// Package oddsecrets has secrets that are hard to find in texts, for tests of redaction, and the ways in which tools
// print them.
package oddsecrets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// pem is a secret of several lines. One of them is too short to be one alone.
const pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nQg==\n" +
	"-----END PRIVATE KEY-----\n"

// Environ returns the secrets as an environment: NAME=value.
func Environ() []string {
	return []string{
		"PEM_KEY=" + pem,
		"CRLF_KEY=first line of it\r\nsecond line of it\r\nxy\r\n",
		"SPACED_KEY=  \t spaces around it \n\n",
		"UNICODE_KEY=żółć–🙂-пароль",
		`JSON_KEY={"type":"account","private_key":"-----BEGIN-----\nZmFrZSBrZXk\n","client_secret": "in<side> it"}`,
		"PRETTY_SECRET={\n  \"password\": \"hunter2 hunter2\",\n  \"n\": 12345678901\n}",
		"SHORT_TOKEN=prefixed-secret",
		"LONG_TOKEN=prefixed-secret-and-more",
		"BASE64_SECRET=c2VjcmV0/+c2VjcmV0==",
		`QUOTES_PASSWORD=p"w\d' $x` + "\t<&>;",
		"SHELL_SECRET=a b\nc d\ne f\ng",
		"CONTROL_KEY=bell\a and \x1b[31mred\x7f",
	}
}

// Pieces returns the forbidden parts of a secret: its value, its lines of 8 bytes and more, and what it assigns to
// names that mark secrets.
func Pieces(value string) []string {
	all := []string{strings.TrimSpace(value)}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= 8 {
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

// Ways are the ways in which tools print a value, by name.
var Ways = map[string]func(string) string{
	"as it is":          func(s string) string { return s },
	"with LF":           lf,
	"with CRLF":         func(s string) string { return strings.ReplaceAll(lf(s), "\n", "\r\n") },
	"by a shell":        func(s string) string { return strings.Join(strings.Fields(s), " ") },
	"as JSON":           func(s string) string { return quoted(s, false) },
	"JSON in JSON":      func(s string) string { return quoted(quoted(s, false), false) },
	"as HTML-safe JSON": func(s string) string { return quoted(s, true) },
	"as ASCII JSON":     ascii,
	"as Go":             strconv.Quote,
}

func lf(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

func quoted(s string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ascii quotes a text as Python's json.dumps does.
func ascii(s string) string {
	var b strings.Builder
	for _, c := range quoted(s, false) {
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
}

// All returns a text with each secret in each way.
func All() string {
	var b strings.Builder
	for _, secret := range Environ() {
		name, value, _ := strings.Cut(secret, "=")
		for _, way := range slices.Sorted(maps.Keys(Ways)) {
			fmt.Fprintf(&b, "%s %s |%s|\n", strings.ToLower(name), way, Ways[way](value))
		}
	}
	return b.String()
}

// Left returns the pieces of secrets in a text, each with its name and the way in which it is written.
func Left(text string) (left []string) {
	for _, secret := range Environ() {
		name, value, _ := strings.Cut(secret, "=")
		for _, piece := range Pieces(value) {
			for way, write := range Ways {
				if strings.Contains(text, strings.Trim(write(piece), `"`)) {
					left = append(left, fmt.Sprintf("%s %s: %q", name, way, piece))
				}
			}
		}
	}
	return left
}
