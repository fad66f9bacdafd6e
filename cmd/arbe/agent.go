package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

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
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "kind", Usage: "`KIND` of the agent: human or bot; required"},
					&cli.StringFlag{
						Name: "runtime", DefaultText: "pi",
						Usage: "`HARNESS` that a bot runs on: " + strings.Join(catalog.Names(), ", "),
					},
					&cli.StringFlag{
						Name: "id", DefaultText: "a new one",
						Usage: "`UUID` of a human: that of the login, where an identity provider has it",
					},
				},
			}, p.createAgent),
			rowsCommand(cli.Command{
				Name: "list", Usage: "list the agents, by name", Flags: []cli.Flag{jsonFlag()},
			}, p.listAgents),
			rowsCommand(cli.Command{
				Name: "archive", ArgsUsage: "AGENT",
				Usage: "take an agent out of use: it has no access any more, and drives no new thread",
			}, p.archiveAgent),
		},
	}
}

// agentRow is an agent as JSON.
type agentRow struct {
	ID         string     `json:"id"`
	Kind       string     `json:"kind"`
	Runtime    string     `json:"runtime,omitempty"`
	Name       string     `json:"name"`
	CreatedAt  time.Time  `json:"createdAt"`
	ArchivedAt *time.Time `json:"archivedAt,omitempty"`
}

func (p *program) createAgent(c *cli.Context, s control.Scope) (err error) {
	var id string
	switch kind := c.String("kind"); kind {
	case rows.KindHuman:
		id, err = p.createHuman(c, s)
	case rows.KindBot:
		id, err = p.createBot(c, s)
	default:
		return cmdline.Usage("--kind %q: want human or bot", kind)
	}
	if err == nil {
		fmt.Fprintln(p.stdout, id)
	}
	return err
}

func (p *program) createHuman(c *cli.Context, s control.Scope) (id string, err error) {
	if c.IsSet("runtime") {
		return id, cmdline.Usage("--runtime is for bots")
	}
	if id = uuid.NewString(); c.IsSet("id") {
		given, err := uuid.Parse(c.String("id"))
		if err != nil {
			return id, cmdline.Usage("--id %q: want a UUID", c.String("id"))
		}
		id = given.String()
	}
	if _, err := s.Agent(c.Context, id); !errors.Is(err, rows.ErrAbsent) {
		if err == nil {
			err = rows.Refuse(rows.ErrTaken, "the agent "+id)
		}
		return id, err
	}
	return id, s.CreateHuman(c.Context, id, c.Args().First())
}

func (p *program) createBot(c *cli.Context, s control.Scope) (string, error) {
	if c.IsSet("id") {
		return "", cmdline.Usage("--id is for humans, whose login has it")
	}
	runtime := "pi"
	if c.IsSet("runtime") {
		runtime = c.String("runtime")
	}
	if _, err := catalog.Lookup(runtime); err != nil {
		return "", cmdline.Usage("--runtime: %w", err)
	}
	a, err := s.CreateBot(c.Context, c.Args().First(), runtime)
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
	found := make([]agentRow, 0, len(all))
	for _, a := range all {
		found = append(found, agentRow(a))
	}
	g := listing.Grid{Head: []string{"NAME", "KIND", "RUNTIME", "CREATED", "STATE", "ID"}}
	return printGrid(p, c, g, found, func(a agentRow) []string {
		return []string{a.Name, a.Kind, a.Runtime, day(a.CreatedAt), archived(a.ArchivedAt), a.ID}
	})
}

func (p *program) archiveAgent(c *cli.Context, s control.Scope) error {
	a, err := findAgent(c, s, c.Args().First())
	if err != nil {
		return err
	}
	return s.ArchiveAgent(c.Context, a.ID)
}
