package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/delegate"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/lease"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/resolve"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
)

// provisionFlags are the limits of a provisioner.
func provisionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "launches", Value: 4, Usage: "launch `N` delegated tasks at the same time"},
		localBoxesFlag(),
	}
}

func localBoxesFlag() cli.Flag {
	return &cli.BoolFlag{
		Name: "local-boxes",
		Usage: "let members of houses, and commands over HTTP, use local boxes, which run as the user of\n" +
			"this process",
	}
}

func (p *program) provisionCommand() *cli.Command {
	return &cli.Command{
		Name:  "provision",
		Usage: "launch the tasks that arbe delegate and members of houses delegate",
		Description: `Any number of hosts may launch the tasks of one database: each task is launched by one of them.
arbe serve --provision does the same. Exit status 0 at a signal: other hosts continue the launches.

` + launchHelp,
		Flags: append(provisionFlags(),
			&cli.BoolFlag{Name: "once", Usage: "launch the tasks that wait now, and end"},
			&cli.StringSliceFlag{
				Name:  "env",
				Usage: "pass the `VARIABLE` of this environment to the agents; may be repeated",
			},
			&cli.StringSliceFlag{
				Name:  "file",
				Usage: "copy a file into the boxes' home folders, mode 0600: `SOURCE:PATH`; may be repeated",
			},
			databaseFlag(), secretKeysFlag(), cmdline.Verbose(),
		),
		Action: p.provisionAction,
	}
}

func (p *program) provisionAction(c *cli.Context) error {
	switch {
	case c.Args().Present():
		return cmdline.Usage("provision takes no arguments")
	case c.Int("launches") < 1:
		return cmdline.Usage("--launches %d: want at least 1", c.Int("launches"))
	case c.String("database") == "":
		return errNoDatabase()
	}
	h, err := p.command(c).host()
	if err != nil {
		return err
	}
	key, err := secret(h.data)
	if err != nil {
		return err
	}
	base, err := serverURL(h.data)
	if err != nil {
		return err
	}
	logger := cmdline.Logger(p.stderr, c.Bool("verbose"))
	if err := p.awaitLog(c, logger); err != nil {
		return err
	}
	db, err := h.database(c.Context)
	if err != nil {
		return databaseExit(err)
	}
	defer db.Close()
	h.client = h.minting(thread.BaseURL(base), key, &thread.Client{Log: logger, HTTP: p.http})
	l := &launches{host: h, cli: c, db: db, key: key, logger: logger}
	if l.env, err = variables("env", c.StringSlice("env")); err != nil {
		return err
	}
	if l.files, err = inlineFiles(c.StringSlice("file")); err != nil {
		return err
	}
	if c.Bool("once") {
		return databaseExit(l.provisioner().Once(c.Context))
	}
	return l.provisioner().Run(c.Context)
}

// reopenEvery is the time between two attempts to reach the thread server, or the database.
const reopenEvery = 5 * time.Second

// awaitLog waits until the thread server answers: a provisioner works for long, and has to know whether the database is
// of the server's log. One pass does not wait.
func (p *program) awaitLog(c *cli.Context, logger *slog.Logger) error {
	for logged := false; ; {
		_, err := p.command(c).installation(c.Context)
		switch {
		case err == nil || c.Context.Err() != nil:
			return nil
		case c.Bool("once"):
			return reach(err)
		case !logged:
			logger.Warn("no answer from the thread server: tasks wait", "error", err)
			logged = true
		}
		pause.For(c.Context, reopenEvery)
	}
}

// provisioning returns a loop that launches tasks beside a server.
func (p *program) provisioning(
	c *cli.Context, d daemon.Data, cfg daemon.Config, s daemon.Serving,
) func(context.Context) error {
	return func(ctx context.Context) error {
		h, _ := p.beside(limitsOf(c), d, cfg, s)
		db, err := h.database(ctx)
		for ; err != nil; db, err = h.database(ctx) {
			if !pause.For(ctx, reopenEvery) {
				return nil
			}
		}
		l := &launches{host: h, cli: c, db: db, key: s.Secret, logger: cfg.Logger}
		return l.provisioner().Run(ctx)
	}
}

// launches launches delegated tasks: a delegate.Host.
type launches struct {
	host   host
	cli    *cli.Context
	db     *control.DB
	key    []byte // signs tokens
	logger *slog.Logger

	env   map[string]string // of each agent
	files []launch.Inline   // in each box
}

func (l *launches) provisioner() delegate.Provisioner {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	return delegate.Provisioner{
		Queue: control.Queue{DB: l.db, Host: name + ":" + uuid.NewString()}, Host: l, Log: l.logger,
		Most: l.cli.Int("launches"),
	}
}

// Announce is delegate.Host's. An id that is taken by another entry stays so: its writer may write the parent.
func (l *launches) Announce(ctx context.Context, o rows.Task) error {
	client, err := l.host.client(o.Parent)
	if err != nil {
		return err
	}
	err = announce(ctx, client, o)
	var se *thread.StatusError
	if errors.As(err, &se) && se.Status == http.StatusConflict {
		l.logger.Warn("task not announced: the id is taken", "thread", o.Thread, "parent", o.Parent)
		return nil
	}
	return err
}

// announce posts a task on its parent's thread.
func announce(ctx context.Context, client *thread.Client, o rows.Task) error {
	_, err := client.Append(ctx, []thread.Entry{{
		ID: thread.SpawnID(o.Thread), TS: thread.Stamp(time.Now()), AuthorID: o.Author,
		Payload: thread.Marshal(thread.AgentSpawn{
			Type: thread.TypeAgentSpawn, ChildThreadID: o.Thread, AgentID: o.Agent,
		}),
	}})
	return err
}

// Launch is delegate.Host's.
func (l *launches) Launch(ctx context.Context, o rows.Task) error {
	launcher, task, err := l.prepare(ctx, o)
	if err != nil {
		if l.Temporary(err) {
			return err
		}
		return errors.Join(err, l.Refuse(ctx, o, err))
	}
	// Noted before the run exists, so reconcile --all finds it.
	if err := remember(l.host.data, task.Thread); err != nil {
		return errors.Join(err, l.Refuse(ctx, o, err))
	}
	_, err = launcher.Launch(ctx, task)
	if errors.Is(err, launch.ErrLaunched) {
		l.logger.Info("task not launched: its run is on the thread", "thread", o.Thread, "reason", err)
		return nil
	}
	return waits(err)
}

// waits gives the error about another run on a task's thread its sentinel.
func waits(err error) error {
	var other *launch.BusyError
	if errors.As(err, &other) {
		err = fmt.Errorf("%w: %w", delegate.ErrBusy, err)
	}
	return err
}

// Refuse is delegate.Host's.
func (l *launches) Refuse(ctx context.Context, o rows.Task, cause error) error {
	client, err := l.host.client(o.Thread)
	if err != nil {
		return err
	}
	launcher := &launch.Launcher{Client: client}
	return waits(launcher.Refuse(ctx, l.task(o), cause))
}

// Temporary is delegate.Host's.
func (l *launches) Temporary(err error) bool {
	var se *thread.StatusError
	if errors.As(err, &se) {
		switch se.Status {
		case http.StatusBadRequest, http.StatusConflict, http.StatusGone, http.StatusRequestEntityTooLarge:
			return false
		}
		return true
	}
	var claimed *rows.ClaimedError
	var doubt *reap.DoubtError
	return rows.IsAway(err) || sandbox.Temporary(err) || errors.As(err, &claimed) || errors.As(err, &doubt) ||
		errors.Is(err, resolve.ErrSlow) || errors.Is(err, lease.ErrReleased) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// task returns the task of an order without what its box needs.
func (l *launches) task(o rows.Task) launch.Task {
	t := launch.Task{
		Thread: o.Thread, Run: o.Run(), Queued: true, Author: o.Author, Driver: o.Agent, Prompt: o.Prompt,
		Harness: o.Harness, Model: o.Model, Live: o.Live, Env: l.env, Files: l.files,
		Box: sandbox.Options{
			Repo: o.Repo, Branch: o.Branch, Ephemeral: o.Sandbox == "",
			Target: os.Getenv("DAYTONA_TARGET"), GitHub: os.Getenv("GITHUB_SERVER_URL"),
		},
	}
	if o.Parent != "" {
		t.Parent = &thread.Parent{ThreadID: o.Parent, AuthorID: o.Result}
	}
	if o.Trusted { // the token is the operator's: no member clones with it
		t.Box.Token = os.Getenv("GITHUB_TOKEN")
	}
	return t
}

// errLocal is the error of a member's task that would run as the user of this process.
var errLocal = errors.New("this host launches no tasks of members in local boxes: start it with --local-boxes")

// prepare returns the task of an order, and what launches it.
func (l *launches) prepare(ctx context.Context, o rows.Task) (*launch.Launcher, launch.Task, error) {
	t := l.task(o)
	fail := func(err error) (*launch.Launcher, launch.Task, error) { return nil, t, err }
	spec, err := catalog.Lookup(o.Harness)
	if err != nil {
		return fail(err)
	}
	if o.Live {
		spec = spec.ForLive()
	}
	row := launchRow{db: l.db}
	if row.thread, err = l.db.Host().Thread(ctx, o.Thread); err == nil {
		err = row.box(l.cli)
	}
	if err != nil {
		return fail(err)
	}
	if row.provider == "local" && !o.Trusted && !l.cli.Bool("local-boxes") {
		return fail(errLocal)
	}
	if err = row.follow(ctx, &t); err != nil {
		return fail(err)
	}
	provider, err := providerNamed(l.host.data, "the environment's runtime", row.provider)
	if err != nil {
		return fail(err)
	}
	client, err := l.host.client(o.Thread)
	if err != nil {
		return fail(err)
	}
	at, err := boxStreamURL(l.host.data, provider.Name())
	if err != nil {
		return fail(err)
	}
	t.Secrets = launchSecrets(l.cli, l.db, row.environment)
	progress := func(step string) { l.logger.Debug("launch", "thread", o.Thread, "step", step) }
	clients := func(id string) *thread.Client {
		one, _ := l.host.client(id) // never fails
		return one
	}
	return &launch.Launcher{
		Provider: provider, Client: client, Boxes: clients, StreamURL: at, Runner: runnerFor,
		Agent: launch.Agent{Program: spec.Binary, Package: spec.Package}, Tokens: runTokens(l.key, row.thread.House),
		Rows: l.host.resolver(provider, clients, progress), Progress: progress,
		Continued: func(ctx context.Context, err error) bool {
			return errors.Is(context.Cause(ctx), delegate.ErrStopped) || l.Temporary(err)
		},
	}, t, nil
}

// delegating returns what makes the rows of members' tasks.
func delegating(r rows.Tasks) func(context.Context, rows.Task) (rows.Task, bool, error) {
	return func(ctx context.Context, t rows.Task) (made rows.Task, fresh bool, err error) {
		if t.Agent == "" {
			t.Harness = cmp.Or(t.Harness, "pi")
		}
		if err := checkHarness(&t); err != nil {
			return made, false, &rows.Refusal{Kind: rows.ErrInvalid, Text: err.Error()}
		}
		return r.Delegate(ctx, t.Author, t)
	}
}

// checkHarness makes the harness of a task, where it has one, that of the catalog.
func checkHarness(t *rows.Task) error {
	if t.Harness == "" {
		return nil
	}
	spec, err := catalog.Lookup(t.Harness)
	t.Harness = spec.Name
	return err
}
