package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/sandbox"
)

func (p *program) providersCommand() *cli.Command {
	return &cli.Command{
		Name:  "providers",
		Usage: "print what makes boxes, what its boxes can do, and whether it works here",
		Description: "A provider works here if it is configured and answers. docs/PROVIDERS.md has what each costs\n" +
			"in safety.",
		Flags:  []cli.Flag{jsonFlag()},
		Action: p.listProviders,
	}
}

// providerHere is a kind of boxes, and whether this host can make them.
type providerHere struct {
	Name    string           `json:"name"`
	Summary string           `json:"summary"`
	Works   bool             `json:"works"`
	Version string           `json:"version,omitempty"`
	Error   string           `json:"error,omitempty"` // why it does not work
	Traits  sandbox.Traits   `json:"traits"`
	Takes   []sandbox.Option `json:"takes"`
	Needs   []neededVariable `json:"needs"`
}

// neededVariable is a variable that a provider reads. Its value is not printed.
type neededVariable struct {
	Name     string `json:"name"`
	Meaning  string `json:"meaning"`
	Required bool   `json:"required"`
	Set      bool   `json:"set"`
}

// worksTimeout bounds the question to each provider whether it works.
const worksTimeout = 20 * time.Second

func (p *program) listProviders(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("sandbox providers takes no arguments")
	}
	d, err := p.command(c).data()
	if err != nil {
		return err
	}
	on := boxesOf(p.kinds, d)
	all := make([]providerHere, len(p.kinds))
	var asking sync.WaitGroup
	for i, kind := range p.kinds {
		asking.Go(func() { all[i] = on.ask(c.Context, kind) })
	}
	asking.Wait()
	g := listing.Grid{Head: []string{"PROVIDER", "WORKS", "VERSION", "TRAITS", "TAKES"}}
	err = printGrid(p.stdout, c.Bool("json"), g, all, providerHere.fields)
	for _, one := range all {
		if one.Error != "" && !c.Bool("json") {
			fmt.Fprintf(p.stderr, "%s: %s\n", one.Name, one.Error)
		}
	}
	return err
}

// ask asks a provider whether it works here.
func (b *boxes) ask(ctx context.Context, kind sandbox.Kind) providerHere {
	here := providerHere{
		Name: kind.Name, Summary: kind.Summary, Traits: kind.Traits, Takes: append([]sandbox.Option{}, kind.Takes...),
		Needs: []neededVariable{},
	}
	for _, v := range kind.Needs {
		here.Needs = append(here.Needs, neededVariable{v.Name, v.Meaning, v.Required, b.setting.Getenv(v.Name) != ""})
	}
	p, err := b.open(kind)
	if err == nil {
		here.Traits = p.Traits()
		limited, cancel := context.WithTimeout(ctx, worksTimeout)
		defer cancel()
		here.Version, err = p.Works(limited)
	}
	if here.Works = err == nil; err != nil {
		here.Error, here.Version = err.Error(), ""
	}
	return here
}

// fields returns the columns of a list for people.
func (h providerHere) fields() []string {
	works := "no"
	if h.Works {
		works = "yes"
	}
	var takes []string
	for _, o := range h.Takes {
		takes = append(takes, string(o))
	}
	return []string{
		h.Name, works, cmp.Or(h.Version, "-"), cmp.Or(h.Traits.String(), "-"), cmp.Or(strings.Join(takes, ", "), "-"),
	}
}
