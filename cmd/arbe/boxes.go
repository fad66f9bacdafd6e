package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/reconcile"
	"arbe.0sk.ar/runner/host/sandbox"
)

// boxes are the providers of boxes of this host, each opened once.
type boxes struct {
	kinds   sandbox.Kinds
	setting sandbox.Setting

	mu     sync.Mutex
	opened map[string]sandbox.Provider
}

// boxesOf returns the providers of a host with a data folder.
func boxesOf(kinds sandbox.Kinds, d daemon.Data) *boxes {
	return &boxes{
		kinds: kinds, setting: sandbox.Setting{Getenv: os.Getenv, Data: string(d)},
		opened: map[string]sandbox.Provider{},
	}
}

// named returns the provider with a name, which the command line has in a place, such as --sandbox.
func (b *boxes) named(place, name string) (sandbox.Provider, error) {
	kind, err := b.kinds.Named(name)
	if err != nil {
		return nil, cmdline.Usage("%s %w", place, err)
	}
	p, err := b.open(kind)
	if err != nil {
		return nil, &cmdline.Exit{Status: exitConfig, Cause: err}
	}
	return p, nil
}

// open opens the provider of a kind.
func (b *boxes) open(kind sandbox.Kind) (p sandbox.Provider, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p = b.opened[kind.Name]; p != nil {
		return p, nil
	}
	if p, err = kind.Open(b.setting); err == nil {
		b.opened[kind.Name] = p
	}
	return p, err
}

// configured returns the providers that are configured here. Another one has no boxes of this host.
func (b *boxes) configured() map[string]reconcile.Provider {
	all := map[string]reconcile.Provider{}
	for _, kind := range b.kinds {
		if p, err := b.open(kind); err == nil {
			all[kind.Name] = p
		}
	}
	return all
}

// runtimes are the providers that environments may name.
func (p *program) runtimes() recipe.Runtimes { return provision.Runtimes(p.kinds) }

// variablesOf describes the variables of the environment that providers read.
func variablesOf(kinds sandbox.Kinds) string {
	var lines []string
	for _, k := range kinds {
		var names []string
		for _, v := range k.Needs {
			names = append(names, v.Name)
		}
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("  %s   for --sandbox %s", strings.Join(names, ", "), k.Name))
		}
	}
	return strings.Join(lines, "\n")
}

// described returns the kinds with their boxes in words: local (a folder of this machine) or daytona (…).
func described(kinds sandbox.Kinds) string {
	var all []string
	for _, k := range kinds {
		all = append(all, k.Name+" ("+k.Summary+")")
	}
	return sandbox.Either(all)
}
