package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/rows"
)

func (p *program) memberCommand() *cli.Command {
	return &cli.Command{
		Name: "member", Usage: "keep the members of a house: humans and bots",
		Subcommands: []*cli.Command{
			houseCommand(cli.Command{
				Name: "add", ArgsUsage: "AGENT", Usage: "make an agent a member, also one that has left",
				Flags: []cli.Flag{&cli.StringFlag{
					Name: "role", Value: rows.RoleMember, Usage: "`ROLE` of the agent: owner or member",
				}},
			}, p.addMember),
			houseCommand(cli.Command{
				Name: "list", Usage: "list the members, in the order of their joining", Flags: []cli.Flag{jsonFlag()},
			}, p.listMembers),
			p.setMemberCommand(),
			houseCommand(cli.Command{
				Name: "role", ArgsUsage: "AGENT ROLE", Usage: "make a member an owner, or an owner a member",
			}, p.setRole),
			houseCommand(cli.Command{
				Name: "archive", ArgsUsage: "AGENT",
				Usage: "end the membership of a bot that has driven threads of the house, and keep them",
			}, memberAction(control.Scope.ArchiveMember)),
			houseCommand(cli.Command{
				Name: "rm", ArgsUsage: "AGENT", Usage: "end a membership",
			}, memberAction(control.Scope.RemoveMember)),
		},
	}
}

// memberRow is a member as JSON.
type memberRow struct {
	Agent      string     `json:"agent"`
	Name       string     `json:"name"`
	Kind       string     `json:"kind"`
	Runtime    string     `json:"runtime,omitempty"`
	Role       string     `json:"role"`
	Mode       string     `json:"mode,omitempty"` // of a bot
	Model      string     `json:"model,omitempty"`
	JoinedAt   time.Time  `json:"joinedAt"`
	ArchivedAt *time.Time `json:"archivedAt,omitempty"`
}

// checkRole returns a usage error for an unknown role.
func checkRole(role string) error {
	if role != rows.RoleOwner && role != rows.RoleMember {
		return cmdline.Usage("role %q: want owner or member", role)
	}
	return nil
}

func (p *program) addMember(c *cli.Context, s control.Scope, h rows.House) error {
	if err := checkRole(c.String("role")); err != nil {
		return err
	}
	a, err := findAgent(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	_, err = s.AddMember(c.Context, h.ID, a.ID, c.String("role"))
	if errors.Is(err, rows.ErrTaken) {
		err = fmt.Errorf("%w: the agent is a member; arbe member role changes the role", err)
	}
	return err
}

func (p *program) listMembers(c *cli.Context, s control.Scope, h rows.House) error {
	agents, err := s.Agents(c.Context)
	if err != nil {
		return err
	}
	of := map[string]rows.Agent{}
	for _, a := range agents {
		of[a.ID] = a
	}
	members, err := s.Members(c.Context, h.ID)
	if err != nil {
		return err
	}
	found := make([]memberRow, 0, len(members))
	for _, m := range members {
		a := of[m.Agent]
		mode := m.Mode
		if a.Kind == rows.KindBot {
			mode = cmp.Or(mode, rows.UsualMode)
		}
		found = append(found, memberRow{
			m.Agent, a.Name, a.Kind, a.Runtime, m.Role, mode, a.Model, m.JoinedAt, m.ArchivedAt,
		})
	}
	g := listing.Grid{Head: []string{"NAME", "ROLE", "KIND", "RUNTIME", "JOINED", "STATE", "ID", "MODE", "MODEL"}}
	return printGrid(p.stdout, c.Bool("json"), g, found, func(m memberRow) []string {
		return []string{
			m.Name, m.Role, m.Kind, m.Runtime, day(m.JoinedAt), archived(m.ArchivedAt), m.Agent, m.Mode, m.Model,
		}
	})
}

// archived returns the state of a row: archived, or in use.
func archived(at *time.Time) string {
	if at != nil {
		return "archived"
	}
	return "in use"
}

func (p *program) setRole(c *cli.Context, s control.Scope, h rows.House) error {
	role := c.Args().Get(1)
	if err := checkRole(role); err != nil {
		return err
	}
	a, err := findAgent(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	return s.SetRole(c.Context, h.ID, a.ID, role)
}

// memberAction returns the action of a command about one member.
func memberAction(
	act func(s control.Scope, ctx context.Context, house string, agent string) error,
) func(*cli.Context, control.Scope, rows.House) error {
	return func(c *cli.Context, s control.Scope, h rows.House) error {
		a, err := findAgent(c.Context, s, c.Args().First())
		if err != nil {
			return err
		}
		return act(s, c.Context, h.ID, a.ID)
	}
}
