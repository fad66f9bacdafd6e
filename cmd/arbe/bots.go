package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/listing"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/dispatch/tools"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/settings"
	"arbe.0sk.ar/runner/host/view"
)

// botFlags are the flags of a bot's settings.
func botFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name:  "model",
			Usage: "`PROVIDER/NAME` of the model by which the bot answers on threads; \"\": it doesn't",
		},
		&cli.StringFlag{
			Name: "instructions", TakesFile: true,
			Usage: "instruct the model by the text in `FILE`, - for stdin; \"\" for no instructions",
		},
		// Not of ARBE_HOUSE, which is the house that is worked in.
		&cli.StringFlag{Name: "house", Usage: "`HOUSE` that owns the bot: its owners may change these settings"},
	}
}

// instructions returns the text of the file that --instructions names.
func (p *program) instructions(c *cli.Context) (string, error) {
	file := c.String("instructions")
	if file == "" {
		return "", nil
	}
	in, err := p.open(c.Context, file, "the instructions")
	if err != nil {
		return "", err
	}
	defer in.Close() // it is only read
	text, err := io.ReadAll(io.LimitReader(in, settings.MaxSize+1))
	if err != nil {
		return "", cmdline.Unread("--instructions", err)
	}
	if !utf8.Valid(text) {
		return "", cmdline.Usage("--instructions %s: want text in UTF-8", file)
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

// changes returns a usage error where none of the flags is there.
func changes(c *cli.Context, flags ...string) error {
	for _, name := range flags {
		if c.IsSet(name) {
			return nil
		}
	}
	return cmdline.Usage("want what to change: --%s", strings.Join(flags, ", --"))
}

// typed returns the text of a flag; nil where it is not there.
func typed(c *cli.Context, name string) *string {
	if !c.IsSet(name) {
		return nil
	}
	return new(c.String(name))
}

// ownerOf returns the id of the house that --house names; "" for none.
func ownerOf(c *cli.Context, s control.Scope) (string, error) {
	if c.String("house") == "" {
		return "", nil
	}
	h, err := findHouse(c.Context, s, c.String("house"))
	return h.ID, err
}

func (p *program) setAgent(c *cli.Context, s control.Scope) error {
	if err := changes(c, "name", "model", "instructions", "house"); err != nil {
		return err
	}
	a, err := findAgent(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	change := rows.AgentChange{Name: typed(c, "name"), Model: typed(c, "model")}
	if c.IsSet("instructions") {
		text, err := p.instructions(c)
		if err != nil {
			return err
		}
		change.Instructions = &text
	}
	if c.IsSet("house") {
		id, err := ownerOf(c, s)
		if err != nil {
			return err
		}
		change.House = &id
	}
	if a.Kind != rows.KindBot && (change.Model != nil || change.Instructions != nil || change.House != nil) {
		return cmdline.Usage("%s is a human: --model, --instructions and --house are for bots", a.Name)
	}
	return s.ChangeAgent(c.Context, a.ID, change)
}

// botSum is an agent with its instructions, as JSON.
type botSum struct {
	rows.Agent
	Instructions string `json:"instructions,omitempty"`
}

func (p *program) showAgent(c *cli.Context, s control.Scope) error {
	a, err := findAgent(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	config, err := s.BotConfig(c.Context, a.ID)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printGrid(p.stdout, true, listing.Grid{}, []botSum{{a, config.Instructions}}, nil)
	}
	house := ""
	if a.House != "" {
		h, err := findHouse(c.Context, s, a.House)
		if err != nil {
			return err
		}
		house = h.Name
	}
	err = printGrid(p.stdout, false, listing.Grid{}, [][]string{
		{"name", a.Name},
		{"id", a.ID},
		{"kind", a.Kind},
		{"created", a.CreatedAt.Local().Format(time.DateTime)},
		{"state", archived(a.ArchivedAt)},
		{"runtime", a.Runtime},
		{"house", house},
		{"model", config.Model},
	}, func(row []string) []string { return row })
	if err == nil && config.Instructions != "" {
		fmt.Fprintf(p.stdout, "\n%s\n", view.Visible(config.Instructions))
	}
	return err
}

func (p *program) setMemberCommand() *cli.Command {
	return houseCommand(cli.Command{
		Name: "set", ArgsUsage: "AGENT", Usage: "change when a bot of the house reacts",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "mode",
				Usage: "`MODE`: mention, where it is named (the usual one); ambient, also where a cheap\n" +
					"model finds that it should; always; or off",
			},
			&cli.DurationFlag{
				Name: "ambient-delay", Usage: "in mode ambient, wait for `TIME` for more chats of people",
			},
			&cli.DurationFlag{
				Name: "cooldown", Usage: "in mode always, skip what bots write for `TIME` after an answer",
			},
			&cli.StringSliceFlag{Name: "tool", Usage: "let the bot call the tool `NAME`; may be repeated"},
			&cli.StringSliceFlag{Name: "no-tool", Usage: "don't let it call the tool `NAME`; may be repeated"},
			budgetFlag("the bot", rows.UsualBotBudget), capFlag(),
		},
	}, p.setMember)
}

func (p *program) setMember(c *cli.Context, s control.Scope, h rows.House) error {
	if err := changes(c, "mode", "ambient-delay", "cooldown", "tool", "no-tool", "budget", "cap"); err != nil {
		return err
	}
	a, err := findAgent(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	change := rows.MemberChange{Mode: typed(c, "mode")}
	if change.Mode != nil && *change.Mode == "" {
		return cmdline.Usage("--mode: want mention, ambient, always or off")
	}
	if c.IsSet("ambient-delay") {
		change.AmbientDelay = new(c.Duration("ambient-delay"))
	}
	if c.IsSet("cooldown") {
		change.Cooldown = new(c.Duration("cooldown"))
	}
	change.Budget = dollarsOf(c, "budget")
	if change.Caps, err = capsOf(c); err != nil {
		return err
	}
	if change.Tools, err = toolSwitches(c.StringSlice("tool"), c.StringSlice("no-tool")); err != nil {
		return err
	}
	return s.ChangeMember(c.Context, h.ID, a.ID, change)
}

// toolSwitches returns which tools a bot may call and which it may not.
func toolSwitches(on, off []string) (map[string]bool, error) {
	if len(on)+len(off) == 0 {
		return nil, nil
	}
	all := map[string]bool{}
	for i, name := range slices.Concat(on, off) {
		if !slices.Contains(tools.Names(), name) {
			return nil, cmdline.Usage("there is no tool %q: want %s", name, strings.Join(tools.Names(), ", "))
		}
		all[name] = i < len(on)
	}
	return all, nil
}

func (p *program) setHouseCommand() *cli.Command {
	return rowsCommand(cli.Command{
		Name: "set", ArgsUsage: "HOUSE", Usage: "change what a house runs at once, and how its bots answer",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "runs", Usage: "have `N` runs at once, of tasks and for chats: others wait; \"\" for no limit",
			},
			&cli.Int64Flag{
				Name:  "box-hours",
				Usage: "let runs of tasks and for chats last until their box is `N` hours old; 0 for no limit",
			},
			&cli.StringFlag{
				Name: "gate-model",
				Usage: "`PROVIDER/NAME` of the model that decides whether an ambient bot reacts;\n" +
					"\"\" for the bot's own",
			},
			&cli.StringSliceFlag{
				Name: "key",
				Usage: "`PROVIDER=SECRET`: use the house's secret of this name as the key; may be\n" +
					"repeated; PROVIDER= for the usual name, such as ANTHROPIC_API_KEY",
			},
			&cli.StringFlag{
				Name: "dispatch", Usage: "`SWITCH`: on, from now on bots answer; off, they don't",
			},
			&cli.StringFlag{
				Name:  "create-agents",
				Usage: "`SWITCH`: on, bots that have the tool create_agent make bots of the house; off, they don't",
			},
			budgetFlag("all bots of the house", rows.UsualHouseBudget), capFlag(),
			&cli.StringSliceFlag{
				Name: "price",
				Usage: "`PROVIDER/NAME=IN/OUT[/CACHED[/WRITTEN]]`: US dollars for a million tokens of a\n" +
					"model; may be repeated; PROVIDER/NAME= for the list price",
			},
		},
	}, p.setHouse)
}

func (p *program) setHouse(c *cli.Context, s control.Scope) error {
	err := changes(c, "runs", "box-hours", "gate-model", "key", "dispatch", "create-agents", "budget", "cap", "price")
	if err != nil {
		return err
	}
	change := rows.HouseChange{GateModel: typed(c, "gate-model"), Keys: map[string]string{}}
	for _, key := range c.StringSlice("key") {
		provider, secret, ok := strings.Cut(key, "=")
		if !ok {
			return cmdline.Usage("--key: want PROVIDER=SECRET, the name of a secret of the house")
		}
		change.Keys[provider] = secret
	}
	if change.Dispatch, err = switched(c, "dispatch"); err != nil {
		return err
	}
	if change.Agents, err = switched(c, "create-agents"); err != nil {
		return err
	}
	if change.Runs, err = runsLimit(c); err != nil {
		return err
	}
	if change.BoxHours, err = boxHours(c); err != nil {
		return err
	}
	if err := money(c, &change); err != nil {
		return err
	}
	h, err := findHouse(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	return s.ChangeHouse(c.Context, h.ID, change)
}

// switched returns what a flag switches; nil where it is not there.
func switched(c *cli.Context, name string) (*bool, error) {
	switch typed := c.String(name); {
	case typed == "on", typed == "off":
		return new(typed == "on"), nil
	case c.IsSet(name):
		return nil, cmdline.Usage("--%s %q: want on or off", name, typed)
	}
	return nil, nil
}

// limitLines are the lines of a house about the hours of its boxes, and about how its bots answer.
func limitLines(h rows.House, c rows.HouseConfig) (lines [][]string) {
	if c.BoxHours != nil {
		lines = append(lines, []string{"hours of a box", strconv.FormatInt(*c.BoxHours, 10)})
	}
	return append(lines, dispatchLines(h, c.Dispatch)...)
}

// dispatchLines are the lines of a house about how its bots answer.
func dispatchLines(h rows.House, d rows.HouseDispatch) [][]string {
	var keys []string
	for _, provider := range slices.Sorted(maps.Keys(d.Models)) {
		if secret := d.Models[provider].Secret; secret != "" {
			keys = append(keys, provider+"="+secret)
		}
	}
	answer := "no"
	if h.DispatchSince != nil {
		answer = "since " + h.DispatchSince.Local().Format(time.DateTime)
	}
	lines := [][]string{
		{"bots answer", answer},
		{"gate model", d.GateModel},
		{"keys", strings.Join(keys, " ")},
		{"budget", dollars(rows.BudgetOf(d.Budget, rows.UsualHouseBudget)) + " a day"},
	}
	if d.CreateAgents {
		lines = append(lines, []string{"bots make bots", "yes"})
	}
	return lines
}
