package session

import "strings"

// List is a list of harnesses, by their dialects. nil is the list that is built in.
type List []Dialect

var builtIn = List{Pi, Codex, Claude}

// Harnesses returns the list that is built in.
func Harnesses() List { return append(List(nil), builtIn...) }

func (l List) all() List {
	if l == nil {
		return builtIn
	}
	return l
}

// Named returns the dialect of the harness with a name.
func (l List) Named(name string) (d Dialect, found bool) {
	for _, d := range l.all() {
		if d.Harness == name {
			return d, true
		}
	}
	return d, false
}

// Of returns the dialect of the harness that writes entries of a type: that of "claude.assistant" has the prefix
// "claude".
func (l List) Of(typ string) (d Dialect, found bool) {
	prefix, _, dotted := strings.Cut(typ, ".")
	for _, d := range l.all() {
		if dotted && d.Prefix == prefix {
			return d, true
		}
	}
	return d, false
}

// Names returns the harnesses' names.
func (l List) Names() (names []string) {
	for _, d := range l.all() {
		names = append(names, d.Harness)
	}
	return names
}

// Types returns the type of each harness's entries of a kind; for "" the beginning of all its types.
func (l List) Types(kind string) (types []string) {
	for _, d := range l.all() {
		types = append(types, d.Prefix+"."+kind)
	}
	return types
}
