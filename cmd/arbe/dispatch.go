package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/answer"
	"arbe.0sk.ar/runner/host/dispatch"
	"arbe.0sk.ar/runner/host/model"
	"arbe.0sk.ar/runner/host/model/anthropic"
	"arbe.0sk.ar/runner/host/model/openai"
	api "arbe.0sk.ar/runner/host/model/provider"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread/client"
)

// dispatchFlags are the limits and the providers of a dispatcher.
func dispatchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "reactions", Value: 16, Usage: "let `N` bots answer at the same time"},
		&cli.StringSliceFlag{
			Name: "model-url",
			Usage: "reach the provider NAME of models at URL, as `NAME=URL`; may be repeated. anthropic and openai\n" +
				"have their own, any other name is of an API like OpenAI's",
		},
		gifFlag(),
	}
}

func (p *program) dispatchCommand() *cli.Command {
	return &cli.Command{
		Name:  "dispatch",
		Usage: "have the bots of houses answer on threads",
		Description: `A chat that mentions a bot, as @piet, is answered by its model, and so is any chat where the bot's
mode has it so. Any number of hosts may do this for one database: each chat is answered once, and what a host
leaves unfinished another one continues. arbe serve --dispatch does the same. Each house's secrets have the keys
of its models: ANTHROPIC_API_KEY for anthropic/…, or the name that arbe house set gives. More in docs/BOTS.md.
Exit status 0 at a signal: other hosts continue the answers.`,
		Flags: slices.Concat(dispatchFlags(), taskFlags(), []cli.Flag{
			&cli.BoolFlag{Name: "once", Usage: "answer what waits now, and end"},
			databaseFlag(), secretKeysFlag(), secretKMSFlag(), cmdline.Verbose(),
		}),
		Subcommands: []*cli.Command{p.dispatchExplainCommand()},
		Action:      p.dispatchAction,
	}
}

// checkDispatch returns why a dispatcher can't be as the flags are; with is the flag that asks for it.
func checkDispatch(c *cli.Context, with string) error {
	switch {
	case c.Int("reactions") < 1:
		return cmdline.Usage("--reactions %d: want at least 1", c.Int("reactions"))
	case c.Int("launches") < 1:
		return cmdline.Usage("--launches %d: want at least 1", c.Int("launches"))
	case c.String("secret-keys") == "":
		return cmdline.Usage("%s needs --secret-keys: houses' secrets have the keys of their models", with)
	}
	if err := checkGif(c); err != nil {
		return err
	}
	_, err := models(c.StringSlice("model-url"))
	return err
}

func (p *program) dispatchAction(c *cli.Context) error {
	switch {
	case c.Args().Present():
		return cmdline.Usage("dispatch takes no arguments")
	case c.String("database") == "":
		return errNoDatabase()
	}
	if err := checkDispatch(c, "dispatch"); err != nil {
		return err
	}
	once := c.Bool("once")
	w, err := p.command(c).worker(c.Context, once, c.Bool("verbose"))
	if w == nil {
		return err
	}
	defer w.db.Close()
	to, err := w.tasks(c)
	if err != nil {
		return err
	}
	d, err := w.dispatcher(c, to, w.server)
	if err != nil {
		return err
	}
	if once {
		return databaseExit(d.Once(c.Context))
	}
	w.server.Log.Info("answering on threads", "url", w.server.Base)
	return d.Run(c.Context)
}

// dispatcher returns what answers on the threads of the server that like is a client of, and launches runs there with
// what to has.
func (h host) dispatcher(c *cli.Context, to *provision.Host, like *client.Client) (*answer.Dispatcher, error) {
	all, err := models(c.StringSlice("model-url"))
	list := threadList(to.Key, like)
	means := hands{h, to}.means()
	means.Gifs = gifsOf(c)
	h.toolsOnRows(means, list)
	return &answer.Dispatcher{
		Instance: uuid.NewString(), Client: h.client, List: list, Models: all,
		Rows:   func(ctx context.Context) (answer.Rows, error) { return h.database(ctx) },
		Tools:  means.All(),
		Secret: h.secretOf, Secrets: h.secrets, Resume: resuming(to), Reactions: c.Int("reactions"),
		Launches: c.Int("launches"), Log: like.Log,
	}, err
}

// resuming returns what launches runs for the chats of driven threads.
func resuming(to *provision.Host) func(context.Context, string, dispatch.Resume) error {
	return func(ctx context.Context, id string, r dispatch.Resume) error {
		log := to.Log.With("thread", id, "run", r.Run, "chat", r.Chat)
		again, err := to.Resume(ctx, provision.Resume{Thread: id, Run: r.Run, Author: r.Author, Last: r.Last})
		held, waits := errors.AsType[*rows.HeldError](err)
		switch {
		case waits:
			return &dispatch.Held{Reason: held.Error()}
		case errors.Is(err, provision.ErrBusy):
			return fmt.Errorf("%w: %w", dispatch.ErrBusy, err)
		case again || ctx.Err() != nil:
			return err
		case err != nil:
			log.Warn("a run for a chat is not launched", "error", err)
		default:
			log.Info("a run for a chat is launched")
		}
		return nil
	}
}

// threadList returns the list of a server's threads, with tokens that are signed here.
func threadList(key []byte, like *client.Client) client.List {
	sign := func() (string, error) {
		return token.Sign(key, token.Grant{
			Stream: token.SubjectThreads, Scope: []string{token.ScopeThreads}, Until: time.Now().Add(listTTL),
		})
	}
	return client.NewList(&client.Client{Base: like.Base, Token: sign, Log: like.Log, HTTP: like.HTTP})
}

// listTTL is how long a token of the list lasts.
const listTTL = 10 * time.Minute

// secretOf returns a secret of a house.
func (h host) secretOf(ctx context.Context, house, name string) (string, error) {
	db, err := h.database(ctx)
	if err != nil {
		return "", err
	}
	v, err := h.keys.vault(ctx, db)
	if err != nil {
		return "", err
	}
	value, err := v.Secret(ctx, house, name)
	return value.Reveal(), err
}

// models returns the providers of models: those with libraries of their own, and those that --model-url names.
func models(urls []string) (answer.Models, error) {
	at := map[string]string{"anthropic": "", "openai": ""}
	for _, pair := range urls {
		name, url, ok := strings.Cut(pair, "=")
		if !ok || name == "" || url == "" || strings.ContainsAny(name, "/ ") {
			return nil, cmdline.Usage("--model-url %q: want NAME=URL", name) // the rest may be a key
		}
		at[name] = url
	}
	all := answer.Models{}
	for name, url := range at {
		all[name] = func(key string) (model.Model, error) {
			return openModel(name, api.Config{BaseURL: url, Key: key})
		}
		if _, err := all[name]("key"); err != nil {
			return nil, cmdline.Usage("--model-url %s: %v", name, err)
		}
	}
	return all, nil
}

func openModel(name string, c api.Config) (model.Model, error) {
	if name == "anthropic" {
		return anthropic.New(c)
	}
	return openai.New(c)
}
