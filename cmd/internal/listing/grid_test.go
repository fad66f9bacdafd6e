package listing

import (
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
)

// A grid is columns for people, no wider than the terminal, and lines for programs.
func TestGrid(t *testing.T) {
	g := Grid{Head: []string{"NAME", "ID"}, Rows: [][]string{{"長い", "one"}, {"a\tb", "two\x1b"}}}
	for width, want := range map[int]string{
		0:  "長い\tone\na b\ttwo·\n",
		40: "NAME  ID\n長い  one\na b   two·\n",
	} {
		var b strings.Builder
		if err := g.Write(&b, Table{Width: width}); err != nil || b.String() != want {
			t.Errorf("%d columns: %v, got %q, want %q", width, err, b.String(), want)
		}
	}
	for width := 1; width < 20; width++ {
		for _, line := range g.lines(Table{Width: width}) {
			if runewidth.StringWidth(line) > width {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
	if lines := (Grid{Head: []string{"NAME"}}).lines(Table{Width: 80}); lines != nil {
		t.Errorf("no rows: %q", lines)
	}
}
