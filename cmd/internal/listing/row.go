package listing

import (
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// titleOf returns a thread's title for people. One that has a row has its name, if it has one, and its tags.
func titleOf(v thread.Summary) string {
	if v.Row == nil {
		return v.Title
	}
	var parts []string
	if v.Pinned {
		parts = append(parts, "★")
	}
	if v.Name != "" {
		parts = append(parts, v.Name)
	} else if v.Title != "" {
		parts = append(parts, v.Title)
	}
	for _, tag := range v.Tags {
		parts = append(parts, "#"+tag)
	}
	if v.Closed {
		parts = append(parts, "(closed)")
	}
	return strings.Join(parts, " ")
}

// rowFields returns a row's fields in a line for programs, which follow the summary's.
func rowFields(r *thread.Row) []string {
	var marks []string
	if r.Pinned {
		marks = append(marks, "pinned")
	}
	if r.Closed {
		marks = append(marks, "closed")
	}
	return []string{r.House, r.Name, strings.Join(r.Tags, ","), strings.Join(marks, ",")}
}
