package recipe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is something in an environment that is refused.
type Problem struct {
	Line, Column int    // from 1; 0 for a problem of no place
	Key          string // such as repositories[0].depth; "" for the whole
	Text         string // such as: want a whole number above 0
}

func (p Problem) String() string {
	text := p.Text
	if p.Key != "" {
		text = p.Key + ": " + text
	}
	if p.Line == 0 {
		return text
	}
	return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, text)
}

// Error has all problems of an environment, in the order of their places.
type Error struct {
	File     string // is printed before each place; "" for none
	Problems []Problem
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
		if e.File != "" && p.Line > 0 {
			lines[i] = e.File + ":" + lines[i]
		} else if e.File != "" {
			lines[i] = e.File + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// in sorts problems by their places, and returns the error of them; nil for none.
func in(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{Problems: problems}
}

// key returns the path of the key of an item in a list.
func key(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }
