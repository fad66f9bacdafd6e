package main

import (
	"cmp"
	"encoding/json"
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
	"arbe.0sk.ar/runner/host/view"
)

// mostDays bounds the days that arbe house budget prints.
const mostDays = 3660

func (p *program) budgetCommand() *cli.Command {
	return rowsCommand(cli.Command{
		Name: "budget", ArgsUsage: "HOUSE", Usage: "print what the answers of a house's bots cost today",
		Description: `The first line of a day (UTC) is of all bots. RESERVED is the highest cost of requests whose
providers have not reported it: those that are made now, and those whose host died or that broke off. It counts as
spent. Models without a price cost nothing here. More in docs/BOTS.md.`,
		Flags: []cli.Flag{&cli.IntFlag{Name: "days", Value: 1, Usage: "print the last `N` days"}, jsonFlag()},
	}, p.budget)
}

// spentRow is the cost of a bot's answers on a day as JSON, in US dollars.
type spentRow struct {
	Day      string  `json:"day"`
	Bot      string  `json:"bot,omitempty"` // none for all bots of the house
	Name     string  `json:"name,omitempty"`
	Spent    float64 `json:"spent"`
	Reserved float64 `json:"reserved"`
	Limit    float64 `json:"limit"`
	Answers  int     `json:"answers"`
	Refused  int     `json:"refused"` // requests, as too little was left
}

func (p *program) budget(c *cli.Context, s control.Scope) error {
	days := c.Int("days")
	if days < 1 || days > mostDays {
		return cmdline.Usage("--days %d: want 1 to %d", days, mostDays)
	}
	h, err := findHouse(c.Context, s, c.Args().First())
	if err != nil {
		return err
	}
	all, err := s.Spent(c.Context, h.ID, days)
	if err != nil {
		return err
	}
	if today := time.Now().UTC().Truncate(24 * time.Hour); len(all) == 0 || all[0].Day.Before(today) {
		config, err := s.HouseConfig(c.Context, h.ID)
		if err != nil {
			return err
		}
		none := rows.Spent{Day: today, Budget: rows.BudgetOf(config.Dispatch.Budget, rows.UsualHouseBudget)}
		all = slices.Insert(all, 0, none)
	}
	if c.Bool("json") {
		var each []spentRow
		for _, x := range all {
			each = append(each, spentRow{
				Day: x.Day.Format(time.DateOnly), Bot: x.Bot, Name: x.Name, Spent: float64(x.Spent) / 1e6,
				Reserved: float64(x.Reserved) / 1e6, Limit: float64(x.Budget) / 1e6, Answers: x.Answers,
				Refused: x.Refused,
			})
		}
		return printGrid(p.stdout, true, listing.Grid{}, each, nil)
	}
	g := listing.Grid{Head: []string{"DAY", "BOT", "SPENT", "RESERVED", "LIMIT", "ANSWERS", "REFUSED"}}
	return printGrid(p.stdout, false, g, all, func(x rows.Spent) []string {
		bot := "all"
		if x.Bot != "" {
			bot = view.BotName(x.Bot, x.Name)
		}
		return []string{
			x.Day.Format(time.DateOnly), bot, dollars(x.Spent), dollars(x.Reserved), dollars(x.Budget),
			strconv.Itoa(x.Answers), strconv.Itoa(x.Refused),
		}
	})
}

// dollars returns millionths of a US dollar as people read them.
func dollars(micros int64) string { return cmp.Or(view.Dollars(float64(micros)/1e6), "$0") }

func budgetFlag(of string, usual float64) cli.Flag {
	return &cli.Float64Flag{
		Name:        "budget",
		DefaultText: fmt.Sprint(usual),
		Usage:       "let the answers of " + of + " cost at most so many `DOLLARS` a day (UTC)",
	}
}

func capFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "cap",
		Usage: "`NAME=NUMBER`: a limit of one answer: rounds, calls, wallMs, outputTokens, tokens,\n" +
			"or cost in US dollars; may be repeated",
	}
}

// dollarsOf returns the amount of a flag; nil where it is not there.
func dollarsOf(c *cli.Context, name string) *float64 {
	if !c.IsSet(name) {
		return nil
	}
	return new(c.Float64(name))
}

// capsOf returns the limits that --cap has.
func capsOf(c *cli.Context) (rows.Caps, error) {
	limits := map[string]json.Number{}
	for _, pair := range c.StringSlice("cap") {
		name, value, _ := strings.Cut(pair, "=")
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return rows.Caps{}, cmdline.Usage("--cap %q: want NAME=NUMBER", pair)
		}
		limits[name] = json.Number(value)
	}
	if len(limits) == 0 {
		return rows.Caps{}, nil
	}
	data, err := json.Marshal(map[string]any{"caps": limits})
	if err != nil { // as of 0x10
		return rows.Caps{}, cmdline.Usage("--cap: want NAME=NUMBER")
	}
	config, err := settings.Member(data)
	return config.Caps, err
}

// money sets what the flags change of a house's limits and prices.
func money(c *cli.Context, change *rows.HouseChange) (err error) {
	change.Budget, change.Prices = dollarsOf(c, "budget"), map[string]rows.Price{}
	if change.Caps, err = capsOf(c); err != nil {
		return err
	}
	for _, pair := range c.StringSlice("price") {
		name, list, ok := strings.Cut(pair, "=")
		price, err := priceOf(list)
		if !ok || !strings.Contains(name, "/") || err != nil {
			return cmdline.Usage("--price %q: want PROVIDER/NAME=IN/OUT[/CACHED[/WRITTEN]] in US dollars", pair)
		}
		change.Prices[name] = price
	}
	return nil
}

// priceOf reads a price; that of nothing for "".
func priceOf(list string) (p rows.Price, err error) {
	if list == "" {
		return p, nil
	}
	parts := strings.Split(list, "/")
	to := []**float64{&p.Input, &p.Output, &p.CacheRead, &p.CacheWrite}
	if len(parts) < 2 || len(parts) > len(to) {
		return p, strconv.ErrRange
	}
	for i, part := range parts {
		dollars, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return p, err
		}
		*to[i] = &dollars
	}
	return p, nil
}
