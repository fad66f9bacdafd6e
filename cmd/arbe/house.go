package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

func (p *program) houseCommand() *cli.Command {
	return &cli.Command{
		Name: "house", Usage: "keep the houses: each owns its threads, environments, secrets and boxes",
		Description: `These commands act as the host, on the rows of all houses. A house, an agent or an environment is
named by its name, its id, or the beginning of its id.`,
		Subcommands: []*cli.Command{
			rowsCommand(cli.Command{
				Name: "create", ArgsUsage: "NAME", Usage: "make a house with its first owner, and print its id",
				Flags: []cli.Flag{&cli.StringFlag{Name: "owner", Usage: "`AGENT` that owns it, a human; required"}},
			}, p.createHouse),
			rowsCommand(cli.Command{
				Name: "list", Usage: "list the houses, by name", Flags: []cli.Flag{jsonFlag()},
			}, p.listHouses),
			rowsCommand(cli.Command{
				Name: "show", ArgsUsage: "HOUSE", Usage: "print a house, its default environment and what it owns",
				Flags: []cli.Flag{jsonFlag()},
			}, p.showHouse),
			rowsCommand(cli.Command{
				Name: "rename", ArgsUsage: "HOUSE NAME", Usage: "change the name of a house",
			}, p.renameHouse),
			rowsCommand(cli.Command{
				Name: "rm", ArgsUsage: "HOUSE", Usage: "delete a house and its rows, once it has no boxes; logs stay",
				Flags: []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "delete it even if it has threads"}},
			}, p.removeHouse),
		},
	}
}

func (p *program) createHouse(c *cli.Context, s control.Scope) error {
	if c.String("owner") == "" {
		return cmdline.Usage("want the --owner of the house; arbe agent create --kind human NAME makes one")
	}
	owner, err := findAgent(c.Context, s, c.String("owner"))
	if err != nil {
		return err
	}
	if owner.Kind == rows.KindBot {
		return fmt.Errorf("--owner %s: %w: it is a bot, and bots are members", owner.Name, rows.ErrInvalid)
	}
	h, err := s.CreateHouse(c.Context, c.Args().First(), owner.ID)
	if err == nil {
		fmt.Fprintln(p.stdout, h.ID)
	}
	return err
}

func (p *program) listHouses(c *cli.Context, s control.Scope) error {
	all, err := s.Houses(c.Context)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		fmt.Fprintln(p.stderr, "no houses yet: arbe house create NAME --owner AGENT makes one")
	}
	g := listing.Grid{Head: []string{"NAME", "ID", "DEFAULT ENVIRONMENT", "CREATED"}}
	return printGrid(p.stdout, c.Bool("json"), g, all, func(h rows.House) []string {
		return []string{h.Name, h.ID, h.DefaultEnvironment, day(h.CreatedAt)}
	})
}

// day returns the day of a time.
func day(t time.Time) string { return t.Local().Format(time.DateOnly) }

// houseSum is a house with what it owns, as JSON.
type houseSum struct {
	rows.House
	Owners       []string `json:"owners"` // ids of agents
	Members      int      `json:"members"`
	Environments int      `json:"environments"`
	Secrets      int      `json:"secrets"`
	Boxes        int      `json:"boxes"`
}

func (p *program) showHouse(c *cli.Context, s control.Scope) error {
	h, err := findHouse(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	members, err := s.Members(c.Context, h.ID)
	if err != nil {
		return err
	}
	agents, err := s.Agents(c.Context)
	if err != nil {
		return err
	}
	n, err := s.HouseCounts(c.Context, h.ID)
	if err != nil {
		return err
	}
	sum := houseSum{
		House: h, Owners: []string{},
		Members: n.Members, Environments: n.Environments, Secrets: n.Secrets, Boxes: n.Sandboxes,
	}
	for _, m := range members {
		if m.ArchivedAt == nil && m.Role == rows.RoleOwner {
			sum.Owners = append(sum.Owners, m.Agent)
		}
	}
	if c.Bool("json") {
		return printGrid(p.stdout, c.Bool("json"), listing.Grid{}, []houseSum{sum}, nil)
	}
	var owners []string
	for _, a := range agents {
		if slices.Contains(sum.Owners, a.ID) {
			owners = append(owners, a.Name)
		}
	}
	byDefault := ""
	if h.DefaultEnvironment != "" {
		e, err := s.Environment(c.Context, h.DefaultEnvironment)
		if err != nil {
			return err
		}
		byDefault = e.Name
	}
	return printGrid(p.stdout, c.Bool("json"), listing.Grid{}, [][]string{
		{"name", sum.Name},
		{"id", sum.ID},
		{"created", sum.CreatedAt.Local().Format(time.DateTime)},
		{"default environment", byDefault},
		{"owners", strings.Join(owners, ", ")},
		{"members", strconv.Itoa(sum.Members)},
		{"environments", strconv.Itoa(sum.Environments)},
		{"secrets", strconv.Itoa(sum.Secrets)},
		{"boxes", strconv.Itoa(sum.Boxes)},
	}, func(row []string) []string { return row })
}

func (p *program) renameHouse(c *cli.Context, s control.Scope) error {
	h, err := findHouse(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	return s.RenameHouse(c.Context, h.ID, c.Args().Get(1))
}

func (p *program) removeHouse(c *cli.Context, s control.Scope) error {
	h, err := findHouse(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	if !c.Bool("force") {
		threads, err := s.Threads(c.Context, rows.Query{House: h.ID, Limit: 1})
		if err != nil {
			return err
		}
		if len(threads) > 0 {
			return fmt.Errorf("house %s: %w: it has threads, whose rows would be deleted, too; use --force",
				h.Name, rows.ErrInUse)
		}
	}
	return s.DeleteHouse(c.Context, h.ID)
}
