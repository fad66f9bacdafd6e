package main

import "github.com/urfave/cli/v2"

func (p *program) envCommand() *cli.Command {
	return &cli.Command{
		Name: "env", Usage: "keep the environments of houses: how their boxes are made",
		Subcommands: []*cli.Command{p.envApplyCommand()},
	}
}
