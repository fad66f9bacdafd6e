package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

func (p *program) agentCommand() *cli.Command {
	return &cli.Command{
		Name: "agent", Usage: "keep the agents, humans and bots, which houses have as members",
		Subcommands: []*cli.Command{
			rowsCommand(cli.Command{
				Name: "create", ArgsUsage: "NAME", Usage: "make an agent, and print its id",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "kind", Usage: "`KIND` of the agent: human or bot; required"},
					&cli.StringFlag{
						Name: "runtime", DefaultText: "pi",
						Usage: "`HARNESS` that a bot runs on: " + strings.Join(catalog.Names(), ", "),
					},
					&cli.StringFlag{
						Name: "id", DefaultText: "a new one",
						Usage: "`UUID` of a human: that of the login, where an identity provider has it",
					},
				}, botFlags()...),
			}, p.createAgent),
			rowsCommand(cli.Command{
				Name: "set", ArgsUsage: "AGENT", Usage: "change an agent's name, and a bot's settings",
				Flags: append([]cli.Flag{&cli.StringFlag{Name: "name", Usage: "name the agent `NAME`"}}, botFlags()...),
			}, p.setAgent),
			rowsCommand(cli.Command{
				Name: "list", Usage: "list the agents, by name", Flags: []cli.Flag{jsonFlag()},
			}, p.listAgents),
			rowsCommand(cli.Command{
				Name: "show", ArgsUsage: "AGENT", Usage: "print an agent, a bot with its instructions",
				Flags: []cli.Flag{jsonFlag()},
			}, p.showAgent),
			rowsCommand(cli.Command{
				Name: "archive", ArgsUsage: "AGENT",
				Usage: "take an agent out of use: it has no access any more, and drives no new thread",
			}, p.archiveAgent),
		},
	}
}

func (p *program) createAgent(c *cli.Context, s control.Scope) (err error) {
	var id string
	name, runtime := c.Args().First(), "pi"
	if c.IsSet("runtime") {
		runtime = c.String("runtime")
	}
	switch kind := c.String("kind"); {
	case kind == rows.KindHuman && c.IsSet("runtime"):
		return cmdline.Usage("--runtime is for bots")
	case kind == rows.KindHuman && (c.IsSet("model") || c.IsSet("instructions") || c.IsSet("house")):
		return cmdline.Usage("--model, --instructions and --house are for bots")
	case kind == rows.KindBot && c.IsSet("id"):
		return cmdline.Usage("--id is for humans, whose login has it")
	case kind == rows.KindHuman && !c.IsSet("id"):
		id, err = createHuman(c.Context, s, name, uuid.NewString())
	case kind == rows.KindHuman:
		id, err = createHuman(c.Context, s, name, c.String("id"))
	case kind == rows.KindBot:
		id, err = p.createBot(c, s, name, runtime)
	default:
		return cmdline.Usage("--kind %q: want human or bot", kind)
	}
	if err == nil {
		fmt.Fprintln(p.stdout, id)
	}
	return err
}

func createHuman(ctx context.Context, s control.Scope, name, typed string) (string, error) {
	given, err := uuid.Parse(typed)
	if err != nil {
		return "", cmdline.Usage("--id %q: want a UUID", typed)
	}
	id := given.String()
	if _, err := s.Agent(ctx, id); !errors.Is(err, rows.ErrAbsent) {
		if err == nil {
			err = rows.Refuse(rows.ErrTaken, "the agent "+id)
		}
		return id, err
	}
	return id, s.CreateHuman(ctx, id, name)
}

func (p *program) createBot(c *cli.Context, s control.Scope, name, runtime string) (id string, err error) {
	if _, err := catalog.Lookup(runtime); err != nil {
		return "", cmdline.Usage("--runtime: %w", err)
	}
	n := rows.NewBot{Name: name, Runtime: runtime}
	n.Config.Model = c.String("model")
	if n.Config.Instructions, err = p.instructions(c); err != nil {
		return "", err
	}
	if n.House, err = ownerOf(c, s); err != nil {
		return "", err
	}
	a, err := s.CreateBot(c.Context, n)
	return a.ID, err
}

func (p *program) listAgents(c *cli.Context, s control.Scope) error {
	all, err := s.Agents(c.Context)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(p.stderr, "no agents yet: arbe agent create --kind human NAME makes one")
	}
	g := listing.Grid{Head: []string{"NAME", "KIND", "RUNTIME", "CREATED", "STATE", "ID", "MODEL"}}
	return printGrid(p.stdout, c.Bool("json"), g, all, func(a rows.Agent) []string {
		return []string{a.Name, a.Kind, a.Runtime, day(a.CreatedAt), archived(a.ArchivedAt), a.ID, a.Model}
	})
}

func (p *program) archiveAgent(c *cli.Context, s control.Scope) error {
	a, err := findAgent(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	return s.ArchiveAgent(c.Context, a.ID)
}
