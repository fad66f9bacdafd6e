package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/stream"
)

func (p *program) sandboxCommand() *cli.Command {
	return &cli.Command{
		Name:  "sandbox",
		Usage: "list, release and push from the boxes that runs have",
		Subcommands: []*cli.Command{
			{
				Name:  "list",
				Usage: "print the boxes, and which thread each is for",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "reconcile", Usage: "settle the threads that they are for first"}, orphanAfterFlag(),
					&cli.BoolFlag{Name: "json", Usage: "one JSON object a line"},
				},
				Action: p.sandboxList,
			},
			{Name: "rm", Usage: "release a box and all in it", ArgsUsage: "PROVIDER:ID…", Action: p.sandboxRemove},
			{
				Name: "push", Usage: "push the branch in a box, and make a pull request of it", ArgsUsage: "PROVIDER:ID",
				Description: "The token is taken from GITHUB_TOKEN. Prints {pushed, branch, commit, prUrl, error}.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "repo", Usage: "`ORG/REPO` (required)"}, &cli.StringFlag{Name: "branch", Usage: "the `BRANCH` (required)"},
					&cli.StringFlag{Name: "title", Usage: "of the pull request (required)"},
				},
				Action: p.sandboxPush,
			},
		},
	}
}

func (p *program) sandboxList(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("sandbox list takes no arguments")
	}
	d, err := data(c)
	if err != nil {
		return err
	}
	providers := p.providers(d)
	if c.Bool("reconcile") {
		ids, err := launchedThreads(c.Context, d, providers)
		if err := errors.Join(err, p.settleQuietly(c, d, providers, ids)); err != nil {
			fmt.Fprintf(p.stderr, "arbe: %v\n", err)
		}
	}
	enc := json.NewEncoder(p.stdout)
	var errs []error
	for _, name := range []string{"local", "daytona"} {
		if providers[name] == nil {
			continue
		}
		boxes, err := providers[name].List(c.Context, nil)
		errs = append(errs, err)
		for _, b := range boxes {
			if c.Bool("json") {
				errs = append(errs, enc.Encode(b))
				continue
			}
			ephemeral, _ := strconv.ParseBool(b.Labels[sandbox.LabelEphemeral]) // one without is none
			word := "kept"
			if ephemeral {
				word = "ephemeral"
			}
			fmt.Fprintf(p.stdout, "%s  %s  %s  thread %s  %s\n", b.Ref, b.State, word, b.Labels[sandbox.LabelThread], b.Created.Local().Format(time.DateTime))
		}
	}
	return errors.Join(errs...)
}

// settleQuietly settles threads, and says what was done on stderr.
func (p *program) settleQuietly(c *cli.Context, d stream.Data, providers map[string]sandbox.Provider, ids []string) error {
	quiet := *p
	quiet.stdout = p.stderr
	return quiet.settle(c, d, providers, ids)
}

// boxOf is the box that an argument names.
func (p *program) boxOf(c *cli.Context, arg string) (sandbox.Sandbox, error) {
	d, err := data(c)
	if err != nil {
		return nil, err
	}
	name, id, ok := cutRef(arg)
	if !ok {
		return nil, cmdline.Usage("%q: want PROVIDER:ID, as arbe sandbox list prints it", arg)
	}
	provider, err := providerNamed(d, name)
	if err != nil {
		return nil, err
	}
	return provider.Open(c.Context, id)
}

func (p *program) sandboxRemove(c *cli.Context) error {
	if !c.Args().Present() {
		return cmdline.Usage("want the boxes to release; see %s --help", c.Command.HelpName)
	}
	var errs []error
	for _, arg := range c.Args().Slice() {
		box, err := p.boxOf(c, arg)
		if err == nil {
			err = box.Destroy(c.Context)
		}
		if errors.Is(err, sandbox.ErrGone) {
			err = nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// cutRef reads a box's name as it is printed.
func cutRef(arg string) (provider, id string, ok bool) {
	provider, id, ok = strings.Cut(arg, ":")
	return provider, id, ok && provider != "" && id != ""
}

func (p *program) sandboxPush(c *cli.Context) error {
	if c.NArg() != 1 || c.String("repo") == "" || c.String("branch") == "" {
		return cmdline.Usage("want one box, --repo and --branch; see %s --help", c.Command.HelpName)
	}
	box, err := p.boxOf(c, c.Args().First())
	if err != nil {
		return err
	}
	o := push.Options{Branch: c.String("branch"), Intent: c.String("title")}
	if out := p.pushed(c.Context, box, o, c.String("repo")); out.Error != "" {
		return &cmdline.Exit{Status: 1}
	}
	return nil
}

// pushed pushes what is in a box to repo, and prints the result. It never fails a run: the work is in the box.
func (p *program) pushed(ctx context.Context, box sandbox.Sandbox, o push.Options, repo string) (out push.Outcome) {
	var err error
	if o.Remote, err = push.ParseRemote(repo, os.Getenv("GITHUB_SERVER_URL")); err != nil {
		out = push.Outcome{Branch: o.Branch, Error: err.Error()}
	} else {
		o.Token, o.BaseURL = os.Getenv("GITHUB_TOKEN"), os.Getenv("GITHUB_API_URL")
		out = push.Push(ctx, box, o)
	}
	_ = json.NewEncoder(p.stdout).Encode(out) // stdout is gone: there is nobody to tell
	return out
}
