package view

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns text with what a reader would not see made visible: control characters and bytes that are not UTF-8
// as "·", and characters that change the direction of text or take no room as ‹U+202E›. Tabs and newlines stay, and
// so do the joiners that letters and emoji need.
func Visible(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		b.WriteString(visible(r))
	}
	return b.String()
}

// hidden reports whether Visible replaces a character.
func hidden(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\u200c', r == '\u200d', r == '\u00ad':
		return false
	case r < 0x7f:
		return r < ' '
	}
	return r < 0xa0 || r == utf8.RuneError || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Cf, r)
}

func visible(r rune) string {
	switch {
	case !hidden(r):
		return string(r)
	case r < 0xa0, r == utf8.RuneError:
		return "·"
	}
	return fmt.Sprintf("‹U+%04X›", r)
}
