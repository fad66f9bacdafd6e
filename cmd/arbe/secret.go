package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control/seal"
)

func (p *program) secretCommand() *cli.Command {
	return &cli.Command{
		Name: "secret", Usage: "keep the keys that seal the secrets of houses",
		Subcommands: []*cli.Command{p.secretKeyCommand()},
	}
}

// secretKeyCommand has the commands about keysets.
func (p *program) secretKeyCommand() *cli.Command {
	return &cli.Command{
		Name:  "key",
		Usage: "make, rotate and list the keys in a file",
		Description: `The file is a keyset of Tink. Without it no sealed secret can be opened again: keep a copy apart
from the database. It has to be for its owner alone (mode 0600).`,
		Subcommands: []*cli.Command{
			{
				Name: "new", Usage: "make a file with one key; an existing file is not replaced", ArgsUsage: "FILE",
				Action: keysetAction(func(c *cli.Context, f seal.File) error { return f.Create(c.Context) }),
			},
			{
				Name: "rotate", ArgsUsage: "FILE",
				Usage:  "add a key, which seals from now on; the older ones still open",
				Action: keysetAction(func(c *cli.Context, f seal.File) error { return f.Rotate(c.Context) }),
			},
			{
				Name: "list", Usage: "print the ids of the keys; primary is the one that seals", ArgsUsage: "FILE",
				Action: keysetAction(p.listKeys),
			},
		},
	}
}

// listKeys prints the ids of a keyset.
func (p *program) listKeys(c *cli.Context, f seal.File) error {
	keys, err := f.Keys(c.Context)
	for _, k := range keys {
		use := "opens"
		if k.Primary {
			use = "primary"
		}
		fmt.Fprintf(p.stdout, "%d\t%s\n", k.ID, use)
	}
	return err
}

// keysetAction returns the action of a command about one keyset.
func keysetAction(act func(*cli.Context, seal.File) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() != 1 || c.Args().First() == "" {
			return cmdline.Usage("want the FILE of the keyset")
		}
		if err := act(c, seal.File{Path: c.Args().First()}); err != nil {
			return &cmdline.Exit{Status: exitConfig, Cause: err}
		}
		return nil
	}
}
