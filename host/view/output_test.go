package view_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"arbe.0sk.ar/runner/host/view"
)

// shown returns lines with their styles in brackets.
func shown(text string) []string {
	var lines []string
	for spans := range view.Lines(text) {
		line := ""
		for _, s := range spans {
			line += styled(s)
		}
		lines = append(lines, line)
	}
	return lines
}

func styled(s view.Span) string {
	var on []string
	for _, f := range []struct {
		is   bool
		name string
	}{
		{s.Style.Bold, "bold"},
		{s.Style.Dim, "dim"},
		{s.Style.Underline, "under"},
		{s.Style.Inverse, "inverse"},
	} {
		if f.is {
			on = append(on, f.name)
		}
	}
	if n, ok := s.Style.Text.Palette(); ok {
		on = append(on, fmt.Sprint(n))
	}
	if r, g, b, ok := s.Style.Text.RGB(); ok {
		on = append(on, fmt.Sprintf("#%02x%02x%02x", r, g, b))
	}
	if n, ok := s.Style.Back.Palette(); ok {
		on = append(on, fmt.Sprintf("on %d", n))
	}
	if on == nil {
		return s.Text
	}
	return "[" + strings.Join(on, " ") + ":" + s.Text + "]"
}

func TestLines(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"a\nb\n", []string{"a", "b"}},
		{"a\n\nb\n\n", []string{"a", "", "b"}},
		{"crlf\r\nnext\r\n", []string{"crlf", "next"}},
		{"\x1b[31mred\x1b[0m plain", []string{"[1:red] plain"}},
		{"\x1b[1;31mboth\x1b[22m one\x1b[m none", []string{"[bold 1:both][1: one] none"}},
		{"\x1b[91;44mbright", []string{"[9 on 4:bright]"}},
		{"\x1b[38;5;208morange\x1b[39m \x1b[38;2;255;0;0mrgb", []string{"[208:orange] [196 #ff0000:rgb]"}},
		{"\x1b[38:2::1:2:3mcolons", []string{"[16 #010203:colons]"}},
		{"\x1b[31mtwo\nlines\x1b[0m", []string{"[1:two]", "[1:lines]"}},
		{"\x1b[38mx\x1b[38;5my\x1b[38;2;1mz\x1b[999mq", []string{"xyzq"}},
		{"\x1b[?25l\x1b[2J\x1b[10;3Hat\x1b[K\x1b[1A", []string{"at"}},
		{"10%\r50%\r100%\n", []string{"100%"}},
		{"10%\r\x1b[K50%\r\x1b[K\ndone", []string{"50%", "done"}},
		{"old\x1b[2Knew \x1b[1Gnewer", []string{"newer"}},
		{"N\bNA\bA", []string{"NA"}},
		{"\b\bx", []string{"x"}},
		{"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", []string{"alinkb"}},
		{"\x1bP1;2|data\x1b\\after \x1b(B\x1b=\x1bMend", []string{"after end"}},
		{"\u009b31mred\u009b0m \u009dtitle\u009cx", []string{"[1:red] x"}},
		{"\x1b]not ended", []string{"·]not ended"}},
		{"\x1b[31", []string{"·[31"}},
		{"\x1b", []string{"·"}},
		{"\x1b[>4mplain", []string{"plain"}},
		{"bell\x07 nul\x00 del\x7f bad\xff", []string{"bell· nul· del· bad·"}},
		{"bidi\u202eabc\u2066 \u200bzero", []string{"bidi‹U+202E›abc‹U+2066› ‹U+200B›zero"}},
		{"👩\u200d💻\ttab é 全", []string{"👩\u200d💻\ttab é 全"}},
	} {
		if d := cmp.Diff(tt.want, shown(tt.text)); d != "" {
			t.Errorf("%q: -want +got:\n%s", tt.text, d)
		}
	}
}

// A line of nothing but changes of style has a bounded number of spans, and its text is whole.
func TestManySpans(t *testing.T) {
	for spans := range view.Lines(strings.Repeat("\x1b[31ma\x1b[32mb", 50_000)) {
		n := 0
		for _, s := range spans {
			n += len(s.Text)
		}
		if len(spans) > 2001 || n != 100_000 {
			t.Errorf("%d spans, %d bytes", len(spans), n)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m\r\n10%\r20%")
	f.Add("\x1b]0;t\x07\u009b1m\x1bP\x1b\\")
	f.Fuzz(func(t *testing.T, text string) {
		size := 0
		for spans := range view.Lines(text) {
			for _, s := range spans {
				if size += len(s.Text); view.Visible(s.Text) != s.Text || strings.ContainsRune(s.Text, '\n') {
					t.Fatalf("%q is not visible", s.Text)
				}
			}
		}
		if size > 10*len(text) {
			t.Fatalf("%d bytes of %d", size, len(text))
		}
	})
}
