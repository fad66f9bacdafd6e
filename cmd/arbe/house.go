package main

import (
	"context"
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
	"arbe.0sk.ar/runner/host/settings"
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
			p.setHouseCommand(),
			p.budgetCommand(),
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

	Runs   rows.HouseRuns   `json:"runs"`
	Config rows.HouseConfig `json:"config,omitzero"`
}

// sumHouse returns a house with what it owns.
func sumHouse(ctx context.Context, s control.Scope, h rows.House) (sum houseSum, err error) {
	sum = houseSum{House: h, Owners: []string{}}
	members, err := s.Members(ctx, h.ID)
	if err != nil {
		return sum, err
	}
	for _, m := range members {
		if m.ArchivedAt == nil && m.Role == rows.RoleOwner {
			sum.Owners = append(sum.Owners, m.Agent)
		}
	}
	n, err := s.HouseCounts(ctx, h.ID)
	if err != nil {
		return sum, err
	}
	sum.Members, sum.Environments, sum.Secrets, sum.Boxes = n.Members, n.Environments, n.Secrets, n.Sandboxes
	if sum.Runs, err = s.HouseRuns(ctx, h.ID); err != nil {
		return sum, err
	}
	sum.Config, err = s.HouseConfig(ctx, h.ID)
	return sum, err
}

func (p *program) showHouse(c *cli.Context, s control.Scope) error {
	h, err := findHouse(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	sum, err := sumHouse(c.Context, s, h)
	if err != nil {
		return err
	}
	agents, err := s.Agents(c.Context)
	if err != nil {
		return err
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
	return printGrid(p.stdout, c.Bool("json"), listing.Grid{}, append([][]string{
		{"name", sum.Name},
		{"id", sum.ID},
		{"created", sum.CreatedAt.Local().Format(time.DateTime)},
		{"default environment", byDefault},
		{"owners", strings.Join(owners, ", ")},
		{"members", strconv.Itoa(sum.Members)},
		{"environments", strconv.Itoa(sum.Environments)},
		{"secrets", strconv.Itoa(sum.Secrets)},
		{"boxes", strconv.Itoa(sum.Boxes)},
		{"runs", runsLine(sum.Runs, sum.Config.Runs)},
	}, limitLines(h, sum.Config)...), func(row []string) []string { return row })
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

// runsLimit returns the limit that --runs sets; nil where it is not there.
func runsLimit(c *cli.Context) (*int64, error) {
	switch typed := typed(c, "runs"); {
	case typed == nil:
		return nil, nil
	case *typed == "":
		return new(int64(rows.NoLimit)), nil
	default:
		n, err := strconv.ParseInt(*typed, 10, 64)
		if err != nil || n < 0 || n > settings.MaxRuns {
			const text = "--runs %q: want a number from 0 to %d, or \"\" for no limit"
			return nil, cmdline.Usage(text, *typed, settings.MaxRuns)
		}
		return &n, nil
	}
}

// boxHours returns the limit that --box-hours sets; nil where it is not there.
func boxHours(c *cli.Context) (*int64, error) {
	switch n := c.Int64("box-hours"); {
	case !c.IsSet("box-hours"):
		return nil, nil
	case n < 0 || n > settings.MaxHours:
		return nil, cmdline.Usage("--box-hours %d: want 1 to %d, or 0 for no limit", n, settings.MaxHours)
	default:
		return &n, nil
	}
}

// runsLine is the line of a house about its runs.
func runsLine(r rows.HouseRuns, limit *int64) string {
	line := strconv.Itoa(r.Running)
	if limit != nil {
		line += " of " + strconv.FormatInt(*limit, 10)
	}
	switch {
	case r.Waiting == 1:
		line += ", 1 waits"
	case r.Waiting > 1:
		line += fmt.Sprintf(", %d wait", r.Waiting)
	}
	return line
}
