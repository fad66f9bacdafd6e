package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness/catalog"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/reap"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

const launchHelp = `The runner is uploaded to the box, and the agent is installed there if it is missing. Once
the runner is started, the run no longer needs this machine: its thread has everything.

Environment:
  ARBE_STREAM_URL          the thread server (default: arbe serve on this machine)
  ARBE_BOX_STREAM_URL      its address as the box reaches it, such as a proxy's (default: ARBE_STREAM_URL)
  ARBE_RUNNER_BIN          the runner's binary for the box (default: arbe-pi-runner beside arbe)
  GITHUB_TOKEN             token for private repositories, --push and pull requests
  DAYTONA_API_KEY, DAYTONA_API_URL, DAYTONA_TARGET, DAYTONA_SNAPSHOT   for --sandbox daytona`

func launchFlags() []cli.Flag {
	return append(environmentFlags(), []cli.Flag{
		&cli.StringFlag{
			Name:  "sandbox",
			Value: "local",
			Usage: "run in a box of `PROVIDER`: local (a folder of this machine) or daytona",
		},
		&cli.StringFlag{
			Name:  "harness",
			Value: "pi",
			Usage: "run the agent `HARNESS`: " + strings.Join(catalog.Names(), ", "),
		},
		&cli.StringFlag{Name: "model", Usage: "`MODEL` for the agent, as the agent names it"},
		&cli.StringFlag{Name: "thread", Usage: "`ID` of the thread (default: a new one)"},
		&cli.StringFlag{Name: "parent", Usage: "`ID` of the thread that gets the result"},
		&cli.StringFlag{Name: "parent-author", Usage: "`AUTHOR` of the result posted to --parent"},
		&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "`AUTHOR` of the task"},
		&cli.StringFlag{
			Name:  "repo",
			Usage: "clone `ORG/REPO` and work there; for a local box also any address or path that git accepts",
		},
		&cli.StringFlag{
			Name:  "branch",
			Usage: "work on `BRANCH`: the remote's if it exists, else a new one from the default branch",
		},
		&cli.BoolFlag{
			Name:  "push",
			Usage: "after a completed run, commit uncommitted changes, push --branch, and open a pull request",
		},
		&cli.StringFlag{
			Name:      "dir",
			Usage:     "copy `FOLDER` into the box and work there, instead of --repo",
			TakesFile: true,
		},
		&cli.StringSliceFlag{
			Name:  "exclude",
			Usage: "skip files of --dir that match `PATTERN`, written as in .gitignore; may be repeated",
		},
		&cli.BoolFlag{
			Name:  "sync",
			Usage: "after a completed run, copy its changes back into --dir; conflicting files arrive as NAME.box",
		},
		&cli.BoolFlag{
			Name:  "sync-delete",
			Usage: "with --sync, delete files of --dir that were deleted in the box and did not change here",
		},
		&cli.BoolFlag{
			Name:  "sync-failed",
			Usage: "with --sync, also copy back the changes of a run that did not complete",
		},
		&cli.BoolFlag{
			Name:  "resume",
			Usage: "continue the thread's last session in its box, or rebuild it from the thread in a new one",
		},
		&cli.BoolFlag{Name: "hydrate", Usage: "with --resume, always rebuild the session from the thread"},
		&cli.BoolFlag{
			Name:  "live",
			Usage: "let the agent take chats while it runs, and wait for the next one after each turn; see arbe say",
		},
		&cli.DurationFlag{
			Name:        "idle",
			Usage:       "end a live run whose agent has waited for `DURATION` without a chat",
			DefaultText: "30m",
		},
		&cli.StringSliceFlag{
			Name:  "env",
			Usage: "pass the `VARIABLE` of this environment to the agent; may be repeated",
		},
		&cli.StringSliceFlag{
			Name:  "file",
			Usage: "copy a file into the box's home folder, mode 0600: `SOURCE:PATH`; may be repeated",
		},
		&cli.StringSliceFlag{
			Name:  "setup",
			Usage: "run the shell `COMMAND` in the box before the agent; may be repeated",
		},
		&cli.StringSliceFlag{
			Name:  "setup-env",
			Usage: "pass the `VARIABLE` of this environment to the setup commands; may be repeated",
		},
		&cli.StringSliceFlag{Name: "agent-arg", Usage: "pass `ARGUMENT` to the agent; may be repeated"},
		&cli.BoolFlag{Name: "keep", Usage: "keep the box after the run"},
		&cli.StringFlag{
			Name:    "snapshot",
			EnvVars: []string{"DAYTONA_SNAPSHOT"},
			Usage:   "create a Daytona box from the snapshot `NAME`",
		},
		&cli.StringFlag{
			Name: "resources",
			Usage: "create a Daytona box with `RESOURCES`, as cpu=2,memory=4,disk=10 (cores, GiB, GiB); " +
				"only with an image: a snapshot has its own",
		},
		&cli.StringFlag{
			Name:    "house",
			EnvVars: []string{"ARBE_HOUSE"},
			Usage: "label the box with the owner `NAME` (arbe.house); with --database the house that\n" +
				"owns thread and box, by name or id",
		},
		&cli.StringFlag{
			Name: "environment",
			Usage: "label the box with the environment `NAME` (arbe.environment); with --database\n" +
				"the environment by which the box is made; other flags outrank it",
		},
		&cli.StringFlag{
			Name: "agent",
			Usage: "with --database, let the bot `AGENT` of the house drive a new thread (default: its oldest\n" +
				"one of the harness)",
		},
		databaseFlag(), secretKeysFlag(), secretKMSFlag(),
	}...)
}

func (p *program) launchCommand() *cli.Command {
	return &cli.Command{
		Name:      "launch",
		Usage:     "start an agent in a box, and return",
		ArgsUsage: "-- TASK",
		Description: "Prints one JSON object, {threadId, runId, sandbox, …}, and the progress on stderr.\n" +
			"TASK may be left out with --live. Exit status 75: the thread has an open run.\n\n" + launchHelp,
		Flags: launchFlags(),
		Action: func(c *cli.Context) error {
			done, err := p.launch(c, "")
			if err != nil {
				return err
			}
			return json.NewEncoder(p.stdout).Encode(done)
		},
	}
}

func (p *program) runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "launch, show the run live, and exit with its status",
		ArgsUsage: "-- TASK",
		Description: `The run continues if this process dies. Ctrl-C asks the run to end; a second Ctrl-C stops
watching.

With --live each line of stdin is a chat for the agent, and TASK may be left out. The end of stdin,
Ctrl-D on a terminal, asks the run to do what is queued and to end.

Exit status: 0 if the verdict is completed, else the agent's own (128+n for signal n, 1 if it was 0).

` + launchHelp,
		Flags:  append(launchFlags(), &cli.BoolFlag{Name: "full", Usage: "show long outputs whole"}),
		Action: p.runAction,
	}
}

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
		return p.answers(ctx, o.client, o.Task)
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

// launch launches the task of a command line. attached is this process's hold of the box if there is work after the
// run; "" for none.
func (p *program) launch(c *cli.Context, attached string) (launch.Launched, error) {
	fail := func(err error) (launch.Launched, error) { return launch.Launched{}, err }
	h, err := p.command(c).host()
	if err != nil {
		return fail(err)
	}
	o, err := p.orderFrom(c, h)
	if err != nil {
		return fail(err)
	}
	ctx := c.Context
	if err := p.place(ctx, h, &o); err != nil {
		return fail(err)
	}
	cl, task := o.client, o.Task
	steps := cmdline.NewSteps(p.stderr)
	defer steps.End()
	l, err := o.to.Launcher(task, o.place, o.in, cl, func(step string) {
		if note, is := strings.CutPrefix(step, "  "); is { // a line of the step's output
			steps.Note(note)
			return
		}
		steps.Begin(step)
	})
	if err == nil && c.Bool("push") {
		err = p.checkPush(ctx, task.Box)
	}
	if err != nil {
		return fail(err)
	}
	if task.After.Work() {
		l.Attached = attached
	}
	if err := remember(h.data, task.Thread); err != nil {
		return fail(err) // noted before the run exists, so reconcile --all finds it
	}
	begun := false
	l.Begun = func() {
		begun = true
		p.comeBack(task.Thread)
	}
	done, err := l.Launch(ctx, task)
	steps.End()
	var open *launch.BusyError
	var doubt *reap.DoubtError
	switch {
	case err != nil && !begun && ofServer(err):
		return done, reachThread(cl, err)
	case errors.As(err, &open):
		return done, busy(err)
	case client.Gone(err):
		return done, reachThread(cl, err)
	case errors.As(err, &doubt):
		return done, doubtful(ctx, cl, fmt.Errorf("launch on thread %s: %w", task.Thread, err))
	case errors.Is(err, launch.ErrRow):
		return done, &cmdline.Exit{Status: exitConfig, Cause: fmt.Errorf("launch on thread %s: %w", task.Thread, err)}
	case err != nil:
		return done, &cmdline.Exit{Status: 1, Cause: fmt.Errorf("launch on thread %s: %w", task.Thread, err)}
	}
	return done, nil
}

// answers returns an error where the thread server does not answer, or does not take the tokens of this host. Nothing
// is printed and no row is made before. A thread that is to be resumed has to be there.
func (p *program) answers(ctx context.Context, cl *client.Client, t launch.Task) error {
	_, err := exists(ctx, cl)
	if client.NoThread(err) && !t.Resume {
		return nil
	}
	return reachThread(cl, err)
}

// comeBack prints the thread's id, and the commands that show its run and end it.
func (p *program) comeBack(id string) {
	fmt.Fprintf(
		p.stderr,
		"▸ thread %[1]s\n  arbe thread tail %[1]s   shows the run\n  arbe cancel %[1]s        ends it\n",
		id,
	)
}

// checkPush refuses a launch whose work could not be pushed.
func (p *program) checkPush(ctx context.Context, box sandbox.Options) error {
	o, err := pushOptions(box.Repo, box.Branch)
	if err != nil {
		return cmdline.Usage("--push: %w", err)
	}
	commit, err := push.Check(ctx, o)
	if err != nil {
		return &cmdline.Exit{Status: exitConfig, Cause: fmt.Errorf("--push: %w", err)}
	}
	if commit != "" {
		const found = "· the branch %s exists on the remote: the run starts from its commit %.12s\n"
		fmt.Fprintf(p.stderr, found, o.Branch, commit)
	}
	return nil
}

// orderFrom reads the command line of a launch.
func (p *program) orderFrom(c *cli.Context, h host) (order, error) {
	o := order{
		provider: c.String("sandbox"), providerSet: c.IsSet("sandbox"), house: c.String("house"),
		agent: c.String("agent"), environment: c.String("environment"), file: c.String("environment-file"),
		to: h.provision(nil, nil),
	}
	var err error
	o.Task, err = p.taskFrom(c, h)
	return o, err
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
			GitHub: os.Getenv("GITHUB_SERVER_URL"), Target: os.Getenv("DAYTONA_TARGET"),
			Image: c.String("image"), Snapshot: c.String("snapshot"), Ephemeral: !c.Bool("keep"),
		},
		Setup: launch.Setup{Commands: c.StringSlice("setup")},
	}
	t.Box.Labels = map[string]string{}
	for label, value := range map[string]string{
		sandbox.LabelHouse: c.String("house"), sandbox.LabelEnvironment: c.String("environment"),
	} {
		if value != "" {
			t.Box.Labels[label] = value
		}
	}
	if t.Box.Snapshot == os.Getenv("DAYTONA_SNAPSHOT") {
		t.Box.Snapshot = "" // the provider's default
	}
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
		if t.Thread, err = h.resolve(c.Context, t.Thread); err != nil {
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
		if parent, err = h.resolve(c.Context, parent); err != nil {
			return t, err
		}
		t.Parent = &thread.Parent{ThreadID: parent, AuthorID: c.String("parent-author")}
	}
	if dir := c.String("dir"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return t, err
		}
		f := folder.Folder{Path: abs, Exclude: c.StringSlice("exclude")}
		if err := f.Check(); err != nil {
			return t, cmdline.Unread("--dir", err)
		}
		t.Dir = tree{h.folders, copied{Thread: t.Thread, Path: abs, Exclude: f.Exclude}}
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

// providerNamed returns the provider of boxes with the name, which the command line has in a place, such as --sandbox.
func providerNamed(d daemon.Data, place, name string) (provider, error) {
	switch name {
	case "local":
		if runtime.GOOS != "linux" {
			return nil, &cmdline.Exit{
				Status: exitConfig,
				Cause:  fmt.Errorf("local boxes need Linux, and this is %s: use --sandbox daytona", runtime.GOOS),
			}
		}
		return sandbox.NewLocal(filepath.Join(string(d), "boxes")), nil
	case "daytona":
		provider, err := sandbox.NewDaytona(sandbox.Config{
			Key: os.Getenv("DAYTONA_API_KEY"), URL: os.Getenv("DAYTONA_API_URL"),
			Target: os.Getenv("DAYTONA_TARGET"), Snapshot: os.Getenv("DAYTONA_SNAPSHOT"),
			GitHub: os.Getenv("GITHUB_SERVER_URL"),
		})
		if err != nil {
			return nil, &cmdline.Exit{Status: exitConfig, Cause: err}
		}
		return provider, nil
	}
	return nil, cmdline.Usage("%s %q: want local or daytona", place, name)
}

// boxStreamURL returns the address at which a box reaches the thread server.
func boxStreamURL(d daemon.Data, provider string) (string, error) {
	if at := os.Getenv("ARBE_BOX_STREAM_URL"); at != "" {
		return at, nil
	}
	at, err := serverURL(d)
	if err != nil || provider == "local" {
		return at, err
	}
	if onThisMachine(at) {
		const want = "a box elsewhere can't reach the thread server at %s: " +
			"set ARBE_BOX_STREAM_URL to an address of it, or of an arbe proxy, that the box can reach"
		return "", &cmdline.Exit{Status: exitConfig, Cause: fmt.Errorf(want, at)}
	}
	return at, nil
}
