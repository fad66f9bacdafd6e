package main

import (
	"path"
	"strings"
	"testing"
)

// Sizes above which a thing needs a reason in one of the lists of reasons_test.go. Each reason has the size that it was
// written for.
const (
	mostFiles      = 12 // of a package
	mostLines      = 60 // of a function
	mostComplexity = 15 // of a function
	mostMethods    = 3  // of an interface
)

// TestHalls holds that what is large has a reason and stays below the size that it was written for, and that a thing
// that is small has none.
func TestHalls(t *testing.T) {
	h, err := read("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(h.functions) == 0 {
		t.Fatal("no functions were read")
	}
	var files []measure
	for dir, r := range h.packages {
		files = append(files, measure{dir, r.files})
	}
	for _, kind := range []struct {
		unit    string
		most    int
		all     []measure
		reasons map[string]reason
	}{
		{"files", mostFiles, files, manyFiles},
		{"lines", mostLines, h.functions, longFunctions},
		{"paths", mostComplexity, h.complex, complexFunctions},
		{"methods", mostMethods, h.interfaces, wideInterfaces},
	} {
		large := map[string]int{}
		for _, m := range kind.all {
			if name := inRepository(m.name); m.n > kind.most {
				large[name] = max(large[name], m.n)
			}
		}
		for name, n := range large {
			switch r, is := kind.reasons[name]; {
			case !is:
				t.Errorf("%s has %d %s: divide it, or give a reason for more than %d", name, n, kind.unit, kind.most)
			case n > r.most:
				t.Errorf("%s has %d %s, its reason is for %d: %s", name, n, kind.unit, r.most, r.why)
			}
		}
		for name, r := range kind.reasons {
			if large[name] == 0 {
				t.Errorf("%s has at most %d %s: delete its reason: %s", name, kind.most, kind.unit, r.why)
			}
		}
	}
}

// inRepository returns the name of a measure without its file: "host/log.Create", or a package's folder.
func inRepository(name string) string {
	name = strings.TrimPrefix(name, "../../../")
	file, function, is := strings.Cut(name, " ")
	if !is {
		return name
	}
	return path.Dir(file) + "." + function
}
