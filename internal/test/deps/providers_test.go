package deps_test

import (
	"go/scanner"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/providers"
	"arbe.0sk.ar/runner/runner"
)

// namesProviders are the files outside of a provider's own that may have its name or a variable of it, each with what
// it has.
var namesProviders = map[string][]string{
	"cmd/arbe/launch.go":       {"local"},   // the default of --sandbox
	"host/rows/environment.go": {"daytona"}, // the default of a house's environment
	"runner/spawn.go":          {"DAYTONA_", "SPRITES_", "DOCKER_"},
}

// TestProviderNames holds that a provider's name, and the variables that it reads, stand in its own package alone:
// everything else asks for the traits of its boxes.
func TestProviderNames(t *testing.T) {
	kinds := providers.All()
	walk(t, ".go", func(name, text string) {
		dir := filepath.ToSlash(filepath.Dir(name))
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(dir, "internal/test") {
			return
		}
		for _, k := range kinds {
			if dir == "host/sandbox/"+k.Name {
				continue
			}
			for _, found := range namesIn([]byte(text), k) {
				if !slices.Contains(namesProviders[name], found) {
					t.Errorf("%s has %q: ask the provider's Traits, or for an interface", name, found)
				}
			}
			if strings.Contains(text, `/host/sandbox/`+k.Name+`"`) && dir != "host/sandbox/providers" {
				t.Errorf("%s imports the provider %s: package providers alone does", name, k.Name)
			}
		}
	})
}

// namesIn returns the strings in a Go file that are a kind's name, or begin as one of its variables does.
func namesIn(src []byte, k sandbox.Kind) (found []string) {
	fset := token.NewFileSet()
	var s scanner.Scanner
	s.Init(fset.AddFile("", fset.Base(), len(src)), src, nil, 0)
	for {
		_, tok, lit := s.Scan()
		if tok == token.EOF {
			return found
		}
		text, err := strconv.Unquote(lit)
		if tok != token.STRING || err != nil {
			continue
		}
		own := func(v sandbox.Variable) bool {
			prefix, _, _ := strings.Cut(v.Name, "_")
			return strings.HasPrefix(text, prefix+"_")
		}
		if text == k.Name || slices.ContainsFunc(k.Needs, own) {
			found = append(found, text)
		}
	}
}

// TestProviderVariables holds that no variable of a provider reaches an agent.
func TestProviderVariables(t *testing.T) {
	for _, k := range providers.All() {
		for _, v := range k.Needs {
			if runner.AgentMaySee(v.Name) {
				t.Errorf("%s of %s reaches the agent", v.Name, k.Name)
			}
		}
	}
}
