package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Kind describes the boxes of one provider: their traits, the options that they take, and the variables that a host
// needs for them. It is a value, and reads nothing until it is opened.
type Kind struct {
	Name    string // as people type it
	Summary string // its boxes in a few words: a folder of this machine
	Traits  Traits // of its boxes. Those of an opened provider may differ
	// Takes are the fields of Options that its boxes may have beside those that all have.
	Takes []Option
	// ByImage: a box may have Resources of its own only with an Image.
	ByImage bool
	Needs   []Variable
	// Open opens its provider. An error has what to set or start.
	Open func(on Setting) (Provider, error)
}

// Option is a field of Options that some kinds take, as environments write it.
type Option string

// The options that not all kinds take.
const (
	OptionImage     Option = "image"
	OptionSnapshot  Option = "snapshot"
	OptionResources Option = "resources"
	OptionTarget    Option = "target"
	OptionVolumes   Option = "volumes"
)

// AllOptions are the options that not all kinds take.
func AllOptions() []Option {
	return []Option{OptionImage, OptionSnapshot, OptionResources, OptionTarget, OptionVolumes}
}

// Variable is a variable of the host's environment that a provider reads.
type Variable struct {
	Name     string
	Meaning  string
	Required bool
	Secret   bool // it is a key to the provider's account
}

// Setting has all that a provider may use of its host.
type Setting struct {
	Getenv func(name string) string
	Data   string // the folder of this host's own data
}

// Has reports whether boxes of the kind may have an option.
func (k Kind) Has(o Option) bool { return slices.Contains(k.Takes, o) }

// Refuse returns an error for the first option that no box of the kind can have; nil for none. A provider's Check calls
// it first.
func (k Kind) Refuse(o Options) error {
	for _, option := range AllOptions() {
		if o.names(option) && !k.Has(option) {
			return fmt.Errorf("%s: a %s box has none: it is %s", option, k.Name, k.Summary)
		}
	}
	if r := o.Resources; r.CPU < 0 || r.Memory < 0 || r.Disk < 0 {
		const want = "resources: %d cores, %d GiB of memory, %d GiB of disk: want no negative number"
		return fmt.Errorf(want, r.CPU, r.Memory, r.Disk)
	}
	if k.ByImage && o.Image == "" && o.Resources != (Resources{}) {
		const text = "resources: want an image: the snapshots of %s have resources of their own, and its default is one"
		return fmt.Errorf(text, k.Name)
	}
	return nil
}

// names reports whether an option is named.
func (o Options) names(option Option) bool {
	switch option {
	case OptionImage:
		return o.Image != ""
	case OptionSnapshot:
		return o.Snapshot != ""
	case OptionResources:
		return o.Resources != Resources{}
	case OptionTarget:
		return o.Target != ""
	case OptionVolumes:
		return len(o.Volumes) > 0
	}
	return false
}

// Kinds is a list of kinds, with one for each name.
type Kinds []Kind

// Names returns the names of the kinds.
func (all Kinds) Names() []string { return all.having(func(Kind) bool { return true }) }

// Having returns the names of the kinds whose boxes may have an option.
func (all Kinds) Having(o Option) []string { return all.having(func(k Kind) bool { return k.Has(o) }) }

// For names the kinds that take an option, for the help of a flag.
func (all Kinds) For(o Option) string {
	var names []string
	for _, name := range all.Having(o) {
		if k, _ := all.Named(name); k.ByImage && o == OptionResources {
			name += " with an image"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Read reports whether a variable is one that a provider reads.
func (all Kinds) Read(variable string) bool {
	return slices.ContainsFunc(all, func(k Kind) bool {
		return slices.ContainsFunc(k.Needs, func(v Variable) bool { return v.Name == variable })
	})
}

// Unisolated returns the names of the kinds whose boxes are no wall around what runs in them.
func (all Kinds) Unisolated() []string {
	return all.having(func(k Kind) bool { return !k.Traits.Isolated })
}

func (all Kinds) having(is func(Kind) bool) (names []string) {
	for _, k := range all {
		if is(k) {
			names = append(names, k.Name)
		}
	}
	return names
}

// Named returns the kind with a name.
func (all Kinds) Named(name string) (Kind, error) {
	for _, k := range all {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("%q: want %s", name, Either(all.Names()))
}

// Either joins names as a sentence has them: a, b or c.
func Either(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
