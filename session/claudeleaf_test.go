package session_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/session"
)

// claude-code continues from the leaf that it has noted last, unless the session's last turn descends from it.
func TestClaudeAmend(t *testing.T) {
	row := func(kind, id, parent string) string {
		if parent != "null" {
			parent = `"` + parent + `"`
		}
		return `{"parentUuid":` + parent + `,"isSidechain":false,"type":"` + kind + `","uuid":"` + id + `","sessionId":"s1"}`
	}
	noted := func(id string) string {
		return `{"type":"last-prompt","lastPrompt":"go","leafUuid":"` + id + `","sessionId":"s1"}`
	}
	named := func(id string) string { return `{"type":"last-prompt","leafUuid":"` + id + `","sessionId":"s1"}` }
	begin := []string{row("user", "u1", "null"), row("assistant", "a1", "u1"), row("system", "e1", "a1")}
	const explicit = `{"type":"last-prompt","leafUuid":null,"explicit":true,"sessionId":"s1"}`
	const boundary = `{"parentUuid":null,"isSidechain":false,"type":"system","subtype":"compact_boundary","uuid":"b1"}`
	for _, tt := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"empty", nil, ""},
		{"nothing noted", begin, ""},
		{"the last turn", append(begin, noted("a1")), ""},
		{"an error line that a turn follows", append(begin, noted("e1"), row("user", "u2", "e1")), ""},
		{
			"turns behind the noted one",
			append(begin, noted("a1"), row("user", "u2", "a1"), row("system", "e2", "u2"), row("user", "u3", "e2")), "",
		},
		{
			"turns beside the noted one",
			append(begin, noted("e1"), row("user", "u2", "a1"), row("attachment", "t2", "u2")), named("t2"),
		},
		{"noted before its line", []string{begin[0], begin[1], noted("e1"), begin[2], row("user", "u2", "a1")}, named("u2")},
		{
			"an error line at the end",
			append(begin, noted("e1"), row("user", "u2", "a1"), row("system", "e2", "u2")), named("u2"),
		},
		{"nothing but the error line follows", []string{begin[0], begin[1], noted("e1"), begin[2]}, ""},
		{"a note ahead of the turn's last lines", []string{begin[0], noted("e1"), begin[1], begin[2]}, ""},
		{"noted again", append(begin, noted("e1"), row("user", "u2", "a1"), noted("u2")), ""},
		{"named before", append(begin, noted("e1"), row("user", "u2", "a1"), named("u2")), ""},
		{
			"without a leaf",
			append(begin, noted("e1"), row("user", "u2", "a1"), `{"type":"last-prompt","lastPrompt":"go"}`), named("u2"),
		},
		{
			"a subagent's line",
			append(begin, noted("a1"), strings.Replace(row("user", "s2", "u1"), "false", "true", 1)), "",
		},
		{"taken back to the beginning", append(begin, noted("a1"), explicit, row("user", "u2", "null")), ""},
		{"taken back by hand", append(begin, noted("e1"), strings.Replace(noted("u1"), `,"s`, `,"explicit":true,"s`, 1)), ""},
		{"compacted", append(begin, noted("e1"), boundary, row("user", "u2", "b1")), ""},
		{"a circle", append(begin, noted("e1"), row("user", "u2", "u3"), row("user", "u3", "u2")), named("u3")},
		{"a torn line", append(begin, noted("e1"), row("user", "u2", "a1"), `{"type":"user","uu`), named("u2")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s1.jsonl")
			if err := os.WriteFile(path, []byte(strings.Join(tt.lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := session.Claude.Amend(path)
			if string(got) != tt.want || err != nil {
				t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}
