package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

// order is a launch as its command line has it.
type order struct {
	launch.Task
	provider    string // of the box
	providerSet bool   // the command line has it

	house, agent, environment string // as they were typed

	file string // of an environment; "" for none

	// Where it goes.
	to     *provision.Host
	client *client.Client
	place  rows.Place
	in     provision.Provider
}

// place finds where a launch goes, and completes its task. What is wrong on the command line is found before the server
// is asked, and nothing is printed, noted or made before the server has answered; with a database rows come between.
func (p *program) place(ctx context.Context, h host, o *order) (err error) {
	ask := func() error {
		if o.client, err = h.client(o.Thread); err != nil {
			return err
		}
		if o.to.Key, err = secret(h.data); err != nil {
			return err
		}
		// The thread server has to answer, and to take the tokens of this host.
		_, err := exists(ctx, o.client)
		if client.NoThread(err) && !o.Resume {
			return nil
		}
		return reachThread(o.client, err)
	}
	if h.database == nil {
		if err = p.box(ctx, h, o); err != nil {
			return err
		}
		return ask()
	}
	if err = ask(); err != nil {
		return err
	}
	db, err := h.database(ctx)
	if err != nil {
		return databaseExit(err)
	}
	asked, err := o.asked(ctx, db.Host())
	if err != nil {
		return databaseExit(fmt.Errorf("the rows of thread %s: %w", o.Thread, err))
	}
	if o.place, err = o.to.Place(ctx, &o.Task, asked); err != nil {
		return databaseExit(err)
	}
	return p.box(ctx, h, o)
}

// box completes a launch by its environment, and checks what its flags say of the box.
func (p *program) box(ctx context.Context, h host, o *order) error {
	typed := o.Box // by flags alone
	name, err := p.follow(ctx, h, o)
	if err != nil {
		return err
	}
	if o.in, err = o.to.Provider("--sandbox", name); err != nil {
		return err
	}
	if typed.Image == "" && o.Box.Image != "" {
		typed.Resources = sandbox.Resources{} // of the environment's image
	}
	if err := o.in.Check(typed); err != nil {
		return cmdline.Unread("", err)
	}
	return nil
}

// checkPush refuses a launch whose work could not be pushed.
func (p *program) checkPush(ctx context.Context, box sandbox.Options) error {
	o, err := pushOptions(box.Repo, box.Branch)
	if err != nil {
		return cmdline.Usage("--push: %w", err)
	}
	commit, err := push.Check(ctx, o)
	if err != nil {
		return cmdline.Fail(exitConfig, "--push: %w", err)
	}
	if commit != "" {
		const found = "· the branch %s exists on the remote: the run starts from its commit %.12s\n"
		fmt.Fprintf(p.stderr, found, o.Branch, commit)
	}
	return nil
}

// taskFrom reads the task of a launch's command line.
func (p *program) taskFrom(c *cli.Context, h host) (launch.Task, error) {
	spec, err := catalog.Lookup(c.String("harness"))
	if err != nil {
		return launch.Task{}, cmdline.Usage("%w", err)
	}
	id := func() string { return uuid.Must(uuid.NewV7()).String() } // the system's random numbers can't fail
	t := launch.Task{
		Thread: c.String("thread"), Run: id(), Author: c.String("author"),
		Prompt: strings.Join(c.Args().Slice(), " "), Harness: spec.Name, Model: c.String("model"),
		Args: c.StringSlice("agent-arg"), Resume: c.Bool("resume"), Hydrate: c.Bool("hydrate"),
		Live: c.Bool("live"), Idle: c.Duration("idle"),
		Box: sandbox.Options{
			Repo: c.String("repo"), Branch: c.String("branch"), Token: os.Getenv("GITHUB_TOKEN"),
			GitHub: os.Getenv("GITHUB_SERVER_URL"),
			Image:  c.String("image"), Snapshot: c.String("snapshot"), Ephemeral: !c.Bool("keep"),
			Labels: map[string]string{
				sandbox.LabelHouse: c.String("house"), sandbox.LabelEnvironment: c.String("environment"),
			},
		},
		Setup: launch.Setup{Commands: c.StringSlice("setup")},
	}
	maps.DeleteFunc(t.Box.Labels, func(_, value string) bool { return value == "" })
	switch {
	case t.Box.Image != "" && t.Box.Snapshot != "":
		return t, cmdline.Usage("--image and --snapshot exclude each other")
	case strings.TrimSpace(t.Prompt) == "" && !t.Live:
		return t, cmdline.Usage("want a TASK after --")
	case c.IsSet("idle") && !t.Live:
		return t, cmdline.Usage("--idle needs --live")
	case c.IsSet("idle") && t.Idle <= 0:
		return t, cmdline.Usage("--idle %v: want a time above 0", t.Idle)
	case t.Hydrate && !t.Resume:
		return t, cmdline.Usage("--hydrate needs --resume")
	case t.Resume && t.Thread == "":
		return t, cmdline.Usage("--resume needs --thread")
	case t.Thread != "" && !thread.ValidThread(t.Thread):
		return t, cmdline.Usage("--thread %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", t.Thread)
	case c.String("dir") != "" && t.Box.Repo != "":
		return t, cmdline.Usage("--dir and --repo exclude each other")
	case c.Bool("sync") && c.String("dir") == "":
		return t, cmdline.Usage("--sync needs --dir")
	case (c.Bool("sync-delete") || c.Bool("sync-failed")) && !c.Bool("sync"):
		return t, cmdline.Usage("--sync-delete and --sync-failed need --sync")
	case c.Bool("push") && (t.Box.Repo == "" || t.Box.Branch == ""):
		return t, cmdline.Usage("--push needs --repo and --branch")
	}
	if t.Thread != "" {
		if t.Thread, err = p.command(c).toChange(c.Context, t.Thread); err != nil {
			return t, err
		}
	}
	if t.Box.Resources, err = sandbox.ParseResources(c.String("resources")); err != nil {
		return t, cmdline.Usage("--resources: %w", err)
	}
	if t.After, err = afterFrom(c); err != nil {
		return t, err
	}
	if t.Thread == "" {
		t.Thread = id()
	}
	if parent := c.String("parent"); parent != "" {
		if !thread.ValidThread(parent) {
			return t, cmdline.Usage("--parent %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", parent)
		}
		if parent, err = p.command(c).toChange(c.Context, parent); err != nil {
			return t, err
		}
		t.Parent = &thread.Parent{ThreadID: parent, AuthorID: c.String("parent-author")}
	}
	if dir := c.String("dir"); dir != "" {
		n := copied{Thread: t.Thread, Path: dir, Exclude: c.StringSlice("exclude")}
		if t.Dir, err = h.folders.tree("--dir", n, true); err != nil {
			return t, err
		}
	}
	if t.Env, err = variables("env", c.StringSlice("env")); err == nil {
		t.Setup.Env, err = variables("setup-env", c.StringSlice("setup-env"))
	}
	if err != nil {
		return t, err
	}
	t.Files, err = inlineFiles(c.StringSlice("file"))
	return t, err
}

// inlineFiles reads the files that --file names.
func inlineFiles(named []string) (files []launch.File, err error) {
	for _, f := range named {
		source, path, _ := strings.Cut(f, ":")
		if source == "" || path == "" || strings.Contains(path, "\n") {
			return nil, cmdline.Usage("--file %q: want SOURCE:PATH", f)
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, cmdline.Unread("--file", err)
		}
		files = append(files, launch.File{Path: "~/" + path, Content: content, Mode: 0o600, Sensitive: true})
	}
	return files, nil
}

// afterFrom returns the work after the run that the command line asks for; nil for none.
func afterFrom(c *cli.Context) (*thread.After, error) {
	a := thread.After{Keep: c.Bool("keep")}
	if c.Bool("push") {
		remote, err := push.ParseRemote(c.String("repo"), os.Getenv("GITHUB_SERVER_URL"))
		if err != nil {
			return nil, cmdline.Usage("--push: %w", err)
		}
		a.Push = &thread.AfterPush{Repo: remote.URL, Branch: c.String("branch"), PR: true}
	}
	if c.Bool("sync") {
		a.Sync = &thread.AfterSync{Delete: c.Bool("sync-delete"), Failed: c.Bool("sync-failed")}
	}
	if a == (thread.After{}) {
		return nil, nil
	}
	return &a, nil
}

// variables returns the named variables of this environment.
func variables(flag string, names []string) (map[string]string, error) {
	env := map[string]string{}
	for _, name := range names {
		value, ok := os.LookupEnv(name)
		if !ok || strings.Contains(name, "=") {
			return nil, cmdline.Usage("--%s %s: want the name of a variable that is set here", flag, name)
		}
		env[name] = value
	}
	return env, nil
}

// asked finds what a launch's flags stand for: names, ids or beginnings of ids. Without a house it is the thread's;
// without that an environment is named by its id alone.
func (o order) asked(ctx context.Context, s control.Scope) (a provision.Asked, err error) {
	if o.providerSet {
		a.Provider = o.provider
	}
	if o.house != "" {
		h, err := findHouse(ctx, s, o.house)
		if err != nil {
			return a, err
		}
		a.House = h.ID
	}
	if o.agent != "" {
		bot, err := findAgent(ctx, s, o.agent)
		if err != nil {
			return a, err
		}
		a.Agent = bot.ID
	}
	if o.environment == "" {
		return a, nil
	}
	house := a.House
	if house == "" {
		t, err := s.Thread(ctx, o.Thread)
		if rows.Present(err) != nil {
			return a, err
		}
		house = t.House
	}
	e, err := s.Environment(ctx, o.environment) // also one of another house, which does not fit
	if house != "" && (a.House != "" || errors.Is(err, rows.ErrAbsent)) {
		e, err = findEnvironment(ctx, s, house, o.environment)
	}
	if err == nil && e.ArchivedAt != nil {
		err = fmt.Errorf("the environment %s: %w", o.environment, rows.ErrArchived)
	}
	a.House, a.Environment = e.House, e.ID
	return a, err
}
