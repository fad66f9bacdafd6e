package main

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/harness"
	"arbe.0sk.ar/runner/host/folder"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/push"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/stream"
	"arbe.0sk.ar/runner/outcome"
	"arbe.0sk.ar/runner/thread"
)

// guard is the runner's own guard against an agent that hangs, and margin what its last word may need beyond that.
const (
	guard  = 72 * time.Hour
	margin = 6 * time.Hour
)

const launchHelp = `The box gets the runner, and the agent where it has none. From then on nothing hangs on this machine: the run is on its thread.

Environment:
  ARBE_STREAM_URL          the thread server (without it: arbe serve on this machine)
  ARBE_BOX_STREAM_URL      the same as the box reaches it, a proxy for instance (ARBE_STREAM_URL)
  ARBE_RUNNER_BIN          the runner's binary for the box (arbe-pi-runner beside arbe)
  GITHUB_TOKEN             for private repositories
  DAYTONA_API_KEY, DAYTONA_API_URL, DAYTONA_TARGET, DAYTONA_SNAPSHOT   for --sandbox daytona`

func launchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "sandbox", Value: "local", Usage: "where it runs: local (a folder of its own on this machine) or daytona"},
		&cli.StringFlag{Name: "harness", Value: "pi", Usage: "the kind of agent: " + strings.Join(harness.Names(), ", ")},
		&cli.StringFlag{Name: "model", Usage: "the model, in the agent's own words"},
		&cli.StringFlag{Name: "thread", Usage: "the thread's `ID` (a new one)"},
		&cli.StringFlag{Name: "parent", Usage: "the `ID` of the thread that the work is done for: it is told the end"},
		&cli.StringFlag{Name: "parent-author", Usage: "as whom it is told"},
		&cli.StringFlag{Name: "author", EnvVars: []string{"ARBE_AUTHOR_ID"}, Usage: "who asks"},
		&cli.StringFlag{Name: "repo", Usage: "the repository to work in: `ORG/REPO`, for a local box also any address or path that git knows"},
		&cli.StringFlag{Name: "branch", Usage: "the `BRANCH` to make in it"},
		&cli.StringFlag{Name: "dir", Usage: "copy this `FOLDER` into the box instead, and work there", TakesFile: true},
		&cli.StringSliceFlag{Name: "exclude", Usage: "of the folder leave out what has this `PATTERN` as its name or path; may be repeated"},
		&cli.BoolFlag{Name: "resume", Usage: "go on with the thread's last run: in its box where that lives, else in a new one, rebuilt from the thread"},
		&cli.BoolFlag{Name: "hydrate", Usage: "with --resume: rebuild it from the thread in any case"},
		&cli.StringSliceFlag{Name: "env", Usage: "pass the variable `NAME` of this environment on to the agent; may be repeated"},
		&cli.StringSliceFlag{Name: "file", Usage: "put a file into the box's home folder, for its owner alone: `SOURCE:PATH`; may be repeated"},
		&cli.StringSliceFlag{Name: "setup", Usage: "a `COMMAND` to run in the box before the agent; may be repeated"},
		&cli.StringSliceFlag{Name: "setup-env", Usage: "pass the variable `NAME` on to the setup commands; may be repeated"},
		&cli.StringSliceFlag{Name: "agent-arg", Usage: "one more `ARGUMENT` for the agent; may be repeated"},
		&cli.BoolFlag{Name: "keep", Usage: "keep the box when the run has ended"},
		&cli.StringFlag{Name: "house", EnvVars: []string{"ARBE_HOUSE"}, Usage: "whose the box is: its label arbe.house"},
		&cli.StringFlag{Name: "environment", Usage: "the box's label arbe.environment"},
	}
}

func (p *program) launchCommand() *cli.Command {
	return &cli.Command{
		Name:        "launch",
		Usage:       "put an agent to work in a box, and return at once",
		ArgsUsage:   "-- TASK",
		Description: "Prints one JSON object: {threadId, runId, sandbox, …}. What is being done is said on stderr.\n" + launchHelp,
		Flags:       launchFlags(),
		Action: func(c *cli.Context) error {
			done, _, err := p.launch(c)
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
		Usage:     "launch, show the run as it goes, and end as it ended",
		ArgsUsage: "-- TASK",
		Description: `The run goes on when this process is gone. Ctrl-C asks it to end, pressed again it only stops watching.
Exit status: 0 when the verdict is completed, else the agent's own (128+n for signal n, 1 where it said 0).
` + launchHelp,
		Flags: append(launchFlags(),
			&cli.BoolFlag{Name: "push", Usage: "when the run has completed: commit what is left in the box, push the --branch, and make a pull request of it"},
			&cli.BoolFlag{Name: "sync", Usage: "when the run has ended: merge what the box has changed back into --dir"},
			&cli.BoolFlag{Name: "full", Usage: "don't fold long outputs"},
		),
		Action: p.runAction,
	}
}

// launch launches what the command line says.
func (p *program) launch(c *cli.Context) (launch.Launched, *thread.Client, error) {
	fail := func(err error) (launch.Launched, *thread.Client, error) { return launch.Launched{}, nil, err }
	task, spec, err := p.taskFrom(c)
	if err != nil {
		return fail(err)
	}
	d, err := data(c)
	if err != nil {
		return fail(err)
	}
	provider, err := providerNamed(d, c.String("sandbox"))
	if err != nil {
		return fail(err)
	}
	client, err := p.client(c, task.Thread, stream.ScopeWrite)
	if err != nil {
		return fail(err)
	}
	key, err := secret(d)
	if err != nil {
		return fail(err)
	}
	boxURL, err := boxStreamURL(d, provider.Name())
	if err != nil {
		return fail(err)
	}
	l := &launch.Launcher{
		Provider: provider, Client: client,
		Boxes: func(id string) *thread.Client {
			of := &thread.Client{Base: client.Base, Thread: id, Log: client.Log}
			of.Token, err = tokenFor(d, id, stream.ScopeWrite)
			return of
		},
		StreamURL: boxURL, Runner: runnerFor,
		Agent: launch.Agent{Program: spec.Binary, Package: spec.Install[strings.LastIndexByte(spec.Install, ' ')+1:]},
		Tokens: func(threadID, runID string) (write, renew string, err error) {
			write, err = stream.Mint(key, stream.Grant{Thread: threadID, Scope: []string{stream.ScopeWrite}, Run: runID, Until: time.Now().Add(stream.WriteTTL)})
			if err == nil {
				renew, err = stream.Mint(key, stream.Grant{Thread: threadID, Scope: []string{stream.ScopeRenew}, Run: runID, Until: time.Now().Add(guard + margin)})
			}
			return write, renew, err
		},
		Progress: func(step string) { fmt.Fprintf(p.stderr, "· %s\n", step) },
	}
	if err := remember(d, task.Thread); err != nil {
		return fail(err) // before there is anything to settle
	}
	done, err := l.Launch(c.Context, task)
	if err != nil {
		return done, client, &cmdline.Exit{Status: 1, Cause: fmt.Errorf("launch on thread %s: %w", task.Thread, err)}
	}
	return done, client, nil
}

// taskFrom is the task that the command line asks for.
func (p *program) taskFrom(c *cli.Context) (launch.Task, harness.Spec, error) {
	spec, err := harness.Lookup(c.String("harness"))
	if err != nil {
		return launch.Task{}, spec, cmdline.Usage("%w", err)
	}
	id := func() string { return uuid.Must(uuid.NewV7()).String() } // the system's random numbers can't fail
	t := launch.Task{
		Thread: c.String("thread"), Run: id(), Author: c.String("author"), Prompt: strings.Join(c.Args().Slice(), " "), Harness: spec.Name, Model: c.String("model"),
		Args: c.StringSlice("agent-arg"), Resume: c.Bool("resume"), Hydrate: c.Bool("hydrate"),
		Box: sandbox.Options{
			Repo: c.String("repo"), Branch: c.String("branch"), Token: os.Getenv("GITHUB_TOKEN"), Ephemeral: !c.Bool("keep"), AutoStop: guard + margin,
			Snapshot: os.Getenv("DAYTONA_SNAPSHOT"), Target: os.Getenv("DAYTONA_TARGET"),
		},
		Setup: launch.Setup{Commands: c.StringSlice("setup")},
	}
	t.Box.Labels = map[string]string{}
	for label, value := range map[string]string{sandbox.LabelHouse: c.String("house"), sandbox.LabelEnvironment: c.String("environment")} {
		if value != "" {
			t.Box.Labels[label] = value
		}
	}
	switch {
	case strings.TrimSpace(t.Prompt) == "":
		return t, spec, cmdline.Usage("want a TASK after --")
	case t.Hydrate && !t.Resume:
		return t, spec, cmdline.Usage("--hydrate is for --resume")
	case t.Resume && t.Thread == "":
		return t, spec, cmdline.Usage("--resume needs --thread")
	case t.Thread != "" && !thread.ValidThread(t.Thread):
		return t, spec, cmdline.Usage("--thread %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", t.Thread)
	case c.String("dir") != "" && t.Box.Repo != "":
		return t, spec, cmdline.Usage("--dir and --repo exclude each other")
	}
	if t.Thread == "" {
		t.Thread = id()
	}
	if parent := c.String("parent"); parent != "" {
		if !thread.ValidThread(parent) {
			return t, spec, cmdline.Usage("--parent %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", parent)
		}
		t.Parent = &thread.Parent{ThreadID: parent, AuthorID: c.String("parent-author")}
	}
	if dir := c.String("dir"); dir != "" {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			return t, spec, cmdline.Usage("--dir: %s is no folder", dir)
		}
		t.Dir = &folder.Folder{Path: dir, Exclude: c.StringSlice("exclude")}
	}
	if t.Env, err = variables("env", c.StringSlice("env")); err == nil {
		t.Setup.Env, err = variables("setup-env", c.StringSlice("setup-env"))
	}
	if err != nil {
		return t, spec, err
	}
	for _, f := range c.StringSlice("file") {
		source, path, ok := strings.Cut(f, ":")
		content, err := os.ReadFile(source)
		if !ok || path == "" || err != nil {
			return t, spec, cmdline.Usage("--file %s: want SOURCE:PATH, with a SOURCE that can be read", f)
		}
		t.Files = append(t.Files, launch.Inline{Path: path, Content: content})
	}
	return t, spec, nil
}

// variables are the named variables of this environment.
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

// providerNamed is the provider of boxes with the name.
func providerNamed(d stream.Data, name string) (sandbox.Provider, error) {
	switch name {
	case "local":
		return sandbox.NewLocal(filepath.Join(string(d), "boxes")), nil
	case "daytona":
		provider, err := sandbox.NewDaytona(sandbox.Config{
			Key: os.Getenv("DAYTONA_API_KEY"), URL: os.Getenv("DAYTONA_API_URL"), Target: os.Getenv("DAYTONA_TARGET"), Snapshot: os.Getenv("DAYTONA_SNAPSHOT"),
			GitHub: os.Getenv("GITHUB_SERVER_URL"),
		})
		if err != nil {
			return nil, &cmdline.Exit{Status: exitConfig, Cause: err}
		}
		return provider, nil
	}
	return nil, cmdline.Usage("--sandbox %q: want local or daytona", name)
}

// boxStreamURL is where a box reaches the thread server.
func boxStreamURL(d stream.Data, provider string) (string, error) {
	if at := os.Getenv("ARBE_BOX_STREAM_URL"); at != "" {
		return at, nil
	}
	at, err := serverURL(d)
	if err != nil || provider == "local" {
		return at, err
	}
	if u, err := url.Parse(at); err == nil {
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			return "", &cmdline.Exit{Status: exitConfig, Cause: fmt.Errorf("a box elsewhere can't reach %s: set ARBE_BOX_STREAM_URL to an address of the thread server, or of an arbe proxy, that it can reach", at)}
		}
	}
	return at, nil
}

// runnerFor is the path of the runner's binary for an architecture.
func runnerFor(arch string) (string, error) {
	var tried []string
	for _, path := range runnerPaths(arch) {
		is, err := elfArch(path)
		if err == nil && is == arch {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			tried = append(tried, fmt.Sprintf("%s is for %s", path, is))
		}
	}
	return "", fmt.Errorf("no runner for %s: put arbe-pi-runner-linux-%s beside arbe, or set ARBE_RUNNER_BIN %s", arch, arch, strings.Join(tried, ", "))
}

func runnerPaths(arch string) []string {
	if path := os.Getenv("ARBE_RUNNER_BIN"); path != "" {
		return []string{path}
	}
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	dir := filepath.Dir(self)
	return []string{filepath.Join(dir, "arbe-pi-runner-linux-"+arch), filepath.Join(dir, "arbe-pi-runner")}
}

// elfArch is the architecture that a program is for.
func elfArch(path string) (string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return "nothing that Linux runs", err
	}
	defer f.Close() // read only: nothing to lose
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	}
	return f.Machine.String(), nil
}

func (p *program) runAction(c *cli.Context) error {
	if c.Bool("sync") && c.String("dir") == "" {
		return cmdline.Usage("--sync is for --dir")
	}
	if c.Bool("push") && (c.String("repo") == "" || c.String("branch") == "") {
		return cmdline.Usage("--push needs --repo and --branch")
	}
	done, client, err := p.launch(c)
	if err != nil {
		return err
	}
	// From here on the run is its own: a signal is for whoever watches it.
	came := make(chan os.Signal, 4)
	signal.Notify(came, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(came)
	ctx, leave := context.WithCancel(context.WithoutCancel(c.Context))
	defer leave()
	var fold thread.Fold
	show := p.show(c.Bool("full"))
	over := make(chan error, 1)
	go func() {
		over <- client.Follow(ctx, "0", func(e thread.Entry) error {
			fold.Add(e)
			return show(e)
		}, func() bool {
			return statusOf(&fold, done.Run) != thread.StatusRunning && statusOf(&fold, done.Run) != ""
		})
	}()
	for asked := false; ; {
		select {
		case err := <-over:
			if err != nil || statusOf(&fold, done.Run) == thread.StatusRunning {
				return errors.Join(reach(err), p.left(done))
			}
			if c.Bool("push") && statusOf(&fold, done.Run) == thread.StatusCompleted {
				p.pushed(ctx, done.Box, push.Options{Branch: c.String("branch"), Intent: strings.Join(c.Args().Slice(), " "), Thread: done.Thread, Run: done.Run}, c.String("repo"))
			}
			if c.Bool("sync") {
				if err := p.synced(ctx, c, done); err != nil {
					return err
				}
			}
			return ended(&fold, done.Run)
		case sig := <-came:
			if asked || sig != syscall.SIGINT {
				leave()
				continue
			}
			asked = true
			if err := p.askToEnd(ctx, client, done.Run, c.String("harness"), c.String("author"), "interrupted at the terminal"); err != nil {
				fmt.Fprintf(p.stderr, "arbe: %v\n", err)
			}
		}
	}
}

// synced merges the box's folder back into --dir, and prints the result.
func (p *program) synced(ctx context.Context, c *cli.Context, done launch.Launched) error {
	d, err := data(c)
	if err != nil {
		return err
	}
	sync := folder.Sync{
		Folder: folder.Folder{Path: c.String("dir"), Exclude: c.StringSlice("exclude")},
		Base:   done.Base, State: filepath.Join(string(d), "sync", done.Thread),
	}
	res, err := sync.Pull(ctx, done.Box)
	for _, path := range res.Conflicts {
		fmt.Fprintf(p.stderr, "· %s changed here and in the box: kept, the box's version is beside it\n", path)
	}
	return err
}

// left says that the run goes on.
func (p *program) left(done launch.Launched) error {
	return &cmdline.Exit{Status: 1, Cause: fmt.Errorf("the run goes on: arbe thread tail %s shows it, arbe cancel %s ends it", done.Thread, done.Thread)}
}

// ended is the exit status of a run that has ended.
func ended(fold *thread.Fold, id string) error {
	for _, r := range fold.Runs() {
		if r.ID != id || r.Status == thread.StatusCompleted {
			continue
		}
		status := 1
		if t := r.Totals; t != nil && t.ExitCode != nil && *t.ExitCode != 0 {
			status = *t.ExitCode
		} else if t != nil && t.ExitSignal != nil {
			if n, err := outcome.ParseSignal(*t.ExitSignal); err == nil {
				status = 128 + n
			}
		}
		return &cmdline.Exit{Status: status}
	}
	return nil
}
