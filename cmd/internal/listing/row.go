package listing

import (
	"strings"

	"arbe.0sk.ar/runner/thread"
)

// Row is what a house's list has of a thread beside its summary.
type Row struct {
	House  string   `json:"house"`
	Name   string   `json:"name,omitempty"`
	Tags   []string `json:"tags"`
	Pinned bool     `json:"pinned"`
	Closed bool     `json:"closed,omitempty"`
}

// titled returns a thread's title for people: its name, or else the summary's title, and its tags.
func (r Row) titled(v thread.Summary) string {
	var parts []string
	if r.Pinned {
		parts = append(parts, "★")
	}
	if r.Name != "" {
		parts = append(parts, r.Name)
	} else if v.Title != "" {
		parts = append(parts, v.Title)
	}
	for _, tag := range r.Tags {
		parts = append(parts, "#"+tag)
	}
	if r.Closed {
		parts = append(parts, "(closed)")
	}
	return strings.Join(parts, " ")
}

// fields returns what a line for programs has beside the summary's fields.
func (r Row) fields() []string {
	var marks []string
	if r.Pinned {
		marks = append(marks, "pinned")
	}
	if r.Closed {
		marks = append(marks, "closed")
	}
	return []string{r.House, r.Name, strings.Join(r.Tags, ","), strings.Join(marks, ",")}
}

// Titled returns the threads with the titles that their rows give them.
func Titled(threads []thread.Summary, rows map[string]Row) []thread.Summary {
	all := make([]thread.Summary, 0, len(threads))
	for _, v := range threads {
		if r, is := rows[v.ID]; is {
			v.Title = r.titled(v)
		}
		all = append(all, v)
	}
	return all
}
