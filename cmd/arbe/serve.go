package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	arbe "arbe.0sk.ar/runner"
	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/answer"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/exec"
	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/log"
	"arbe.0sk.ar/runner/host/memory"
	"arbe.0sk.ar/runner/host/page"
	"arbe.0sk.ar/runner/host/provision"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/session"
)

func (p *program) serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve threads, from a log on this machine's disk or in a NATS cluster",
		Description: `On a loopback address serve needs no configuration: it creates a secret and keeps it with
the log in the data folder, where the other commands find it. On any other address DURABLE_STREAMS_SECRET (32
bytes or more) is required. With two secrets, separated by a comma, the first signs and both verify, so a secret
can be replaced without a pause. More in docs/SERVE.md.`,
		Subcommands: []*cli.Command{p.backupCommand(), p.restoreCommand(), p.healthCommand()},
		Flags: slices.Concat([]cli.Flag{
			&cli.StringSliceFlag{
				Name: "addr", Value: cli.NewStringSlice("127.0.0.1:8787"),
				Usage: "listen on `HOST:PORT` (port 0 is any) or unix:PATH (a socket); one of each may be given",
			},
			&cli.DurationFlag{
				Name: "long-poll", Value: 20 * time.Second,
				Usage: "close a long-poll without an answer after `DURATION`",
			},
			&cli.StringFlag{
				Name:  "tls-cert",
				Usage: "serve TLS with the certificate in `FILE` (PEM); a changed file is read again", TakesFile: true,
			},
			&cli.StringFlag{Name: "tls-key", Usage: "private key of --tls-cert, in `FILE` (PEM)", TakesFile: true},
			&cli.Float64Flag{Name: "rate", Usage: "accept `N` requests a second for one token; 0 for no limit"},
			&cli.IntFlag{
				Name: "max-connections", Value: 20_000,
				Usage: "accept `N` connections at the same time; further ones are closed at once",
			},
			&cli.GenericFlag{
				Name: "quota", Value: new(cmdline.Size),
				Usage: "limit one stream to `BYTES` (such as 1GiB); 0 for no limit",
			},
			&cli.GenericFlag{
				Name: "token-quota", Value: new(cmdline.Size),
				Usage: "limit the posts with one token to `BYTES` an hour; 0 for no limit",
			},
			&cli.GenericFlag{
				Name: "memory-budget", Value: new(cmdline.Size),
				Usage: "limit the memory of all requests to `BYTES` (such as 256MiB); 0 for a quarter of the memory " +
					"limit",
			},
			&cli.StringFlag{
				Name:  "access-log",
				Usage: "log each request as one line of JSON to `FILE`, - for stderr", TakesFile: true,
			},
			&cli.StringSliceFlag{
				Name: "page-host",
				Usage: "let browsers reach the page as `NAME`, beside loopback names; without one, a server on\n" +
					"another address answers to every name",
			},
			&cli.StringFlag{Name: "debug-addr", Usage: "serve profiles (pprof) on `HOST:PORT`, a loopback address"},
			&cli.DurationFlag{
				Name:  "heartbeat-retention",
				Usage: "delete the heartbeats, but the last one, of runs that ended `DURATION` ago; 0 keeps all",
			},
			&cli.DurationFlag{
				Name: "delta-retention", Value: time.Hour,
				Usage: "delete the text of bots as it came `DURATION` after the whole reply, and their signs of\n" +
					"life after their answer; 0 keeps all",
			},
			&cli.BoolFlag{
				Name:  "insecure-loopback",
				Usage: "serve /v1/stream/ without tokens, on a loopback address only; for the protocol's test suites",
			},
			&cli.BoolFlag{
				Name: "reconcile", Value: true,
				Usage: "settle threads as arbe reconcile does: open runs every 15 s, all threads once a minute, and\n" +
					"each thread whose summary is read; with --reconcile=false on request only",
			},
			&cli.BoolFlag{
				Name:  "provision",
				Usage: "launch delegated tasks, as arbe provision does; needs --database",
			},
			&cli.BoolFlag{
				Name:  "dispatch",
				Usage: "have bots answer, as arbe dispatch does; needs --database and --secret-keys",
			},
			cmdline.Verbose(),
		}, reconcileFlags(), provisionFlags(), dispatchFlags(), natsFlags(), houseFlags()),
		Action: p.serve,
	}
}

// natsFlags are the flags of the log's engine.
func natsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "engine", Value: "pebble",
			Usage: "keep the log in `ENGINE`: pebble (the data folder) or nats (a JetStream cluster)",
		},
		&cli.StringFlag{
			Name: "nats-url", EnvVars: []string{"ARBE_NATS_URL"},
			Usage: "`URLS` of the cluster's servers, separated by commas; put one with a password into the environment",
		},
		&cli.StringFlag{Name: "nats-creds", Usage: "credentials `FILE` for the cluster", TakesFile: true},
		&cli.StringFlag{
			Name: "nats-prefix", Value: "arbe",
			Usage: "`PREFIX` of the names and subjects of the cluster's streams",
		},
		&cli.IntFlag{Name: "nats-shards", Value: 16, Usage: "create `N` streams if the cluster has none"},
		&cli.IntFlag{Name: "nats-replicas", Value: 3, Usage: "create streams with `N` replicas"},
		&cli.BoolFlag{Name: "nats-allow-unsafe", Usage: "start even if the cluster can lose acknowledged writes"},
	}
}

// gcPercent is the server's GOGC. The server keeps little and allocates much: with Go's default of 100 it spends a
// tenth of its time collecting garbage.
const gcPercent = 300

// checkServe returns why flags of serve can't be as they are.
func checkServe(c *cli.Context) error {
	switch engine := c.String("engine"); {
	case c.Args().Present():
		return cmdline.Usage("serve takes no arguments")
	case c.Duration("long-poll") <= 0:
		return cmdline.Usage("--long-poll: want more than 0")
	case !(c.Float64("rate") >= 0) || c.Int("max-connections") < 1 || c.Duration("heartbeat-retention") < 0,
		c.Duration("delta-retention") < 0:
		return cmdline.Usage("want --rate, --heartbeat-retention and --delta-retention of at least 0, and " +
			"--max-connections of at least 1")
	case engine != "pebble" && engine != "nats":
		return cmdline.Usage("--engine %q: want pebble or nats", engine)
	case (engine == "nats") != (c.String("nats-url") != "") && (engine == "nats" || c.IsSet("nats-url")):
		return cmdline.Usage("--engine nats and --nats-url need each other")
	case (c.String("tls-cert") == "") != (c.String("tls-key") == ""):
		return cmdline.Usage("--tls-cert and --tls-key need each other")
	case c.Bool("provision") && c.String("database") == "":
		return cmdline.Usage("--provision needs --database")
	case c.Bool("dispatch") && c.String("database") == "":
		return cmdline.Usage("--dispatch needs --database")
	case c.Int("launches") < 1:
		return cmdline.Usage("--launches %d: want at least 1", c.Int("launches"))
	}
	if _, _, err := addresses(c); err != nil {
		return err
	}
	if c.Bool("dispatch") {
		if err := checkDispatch(c, "--dispatch"); err != nil {
			return err
		}
	}
	for _, flag := range []string{"tls-cert", "tls-key", "nats-creds"} {
		if file := c.String(flag); file != "" {
			if _, err := os.Stat(file); err != nil {
				return cmdline.Unread("--"+flag, err)
			}
		}
	}
	return nil
}

// serve runs a server until the context is done.
func (p *program) serve(c *cli.Context) (err error) {
	if err := checkServe(c); err != nil {
		return err
	}
	cmd := p.command(c)
	d, err := cmd.data()
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		// A fifth is for what Go does not count: the stacks of threads and the pages of files.
		debug.SetMemoryLimit(memory.Limit() / 5 * 4)
	}
	logger := cmdline.Logger(p.stderr, c.Bool("verbose"))
	addr, socket, _ := addresses(c) // they are checked
	cfg := daemon.Config{
		Addr: addr, Socket: socket, Data: d, LongPoll: c.Duration("long-poll"),
		Budget:   cmdline.SizeOf(c, "memory-budget"),
		Insecure: c.Bool("insecure-loopback"),
		Limits: daemon.Limits{
			Rate:        server.Rate{PerSecond: c.Float64("rate")},
			Connections: c.Int("max-connections"),
			StreamBytes: cmdline.SizeOf(c, "quota"),
			TokenBytes:  cmdline.SizeOf(c, "token-quota"),
		},
		Retention: log.Retention{
			Heartbeats: c.Duration("heartbeat-retention"), Passing: c.Duration("delta-retention"),
		},
		Cert: c.String("tls-cert"), Key: c.String("tls-key"), Debug: c.String("debug-addr"),
		Version: arbe.This().String(), Logger: logger, Harnesses: session.Harnesses(),
	}
	if os.Getenv("DURABLE_STREAMS_SECRET") != "" {
		if cfg.Secrets, err = secrets(d); err != nil {
			return err
		}
	}
	if c.String("engine") == "nats" {
		cfg.NATS = &daemon.NATS{
			URL: c.String("nats-url"), Credentials: c.String("nats-creds"), Prefix: c.String("nats-prefix"),
			Shards: c.Int("nats-shards"), Replicas: c.Int("nats-replicas"),
			AllowUnsafe: c.Bool("nats-allow-unsafe"), Logger: logger,
		}
	}
	access, err := p.accessLog(c.String("access-log"))
	if err != nil {
		return err
	}
	if access != nil {
		cfg.Access = access
		defer func() { err = errors.Join(err, access.Close()) }()
	}
	r, provider, err := p.houses(c, logger)
	if err != nil {
		return err
	}
	cfg.Provider, cfg.CheckRecipe = provider, p.runtimes().Check
	if r != nil {
		defer r.Close()
		cfg.Rows, cfg.Store, cfg.Delegate, cfg.Unserved = r, r, provision.Delegating(r), r.Unserved
		cfg.Opened = func(ctx context.Context, streams *log.Log) {
			r.Log = streams.Installation
			r.Start(ctx)
		}
	}
	cfg.SettleReads = c.Bool("reconcile")
	var hook *answer.Hook
	if c.Bool("dispatch") {
		hook = answer.NewHook()
		cfg.Changed = func(v log.Change) { hook.Changed(v.Stream) }
	}
	cfg.Parts = func(s daemon.Serving) daemon.Parts {
		here := cmd.beside(cfg, s)
		to := here.host.provision(s.Secret, logger)
		to.LocalBoxes = c.Bool("local-boxes")
		starts := exec.NewGroup(mostStarts)
		with := services{starts.Run}
		if r != nil {
			with = append(with, project(r, s), s.Metrics.OfMoney(r.Today))
		}
		if c.Bool("reconcile") {
			with = append(with, here.reconcile)
		}
		if c.Bool("provision") {
			with = append(with, func(ctx context.Context) error { return here.provision(ctx, to, c.Int("launches")) })
		}
		if hook != nil {
			with = append(with, func(ctx context.Context) error { return here.dispatch(ctx, c, to, hook) })
		}
		return daemon.Parts{
			Settle: here.settling(), Commands: &commander{here.host, to, starts},
			Page: page.Handler(shownBy(c, cfg, s, r)), Beside: with.run,
		}
	}
	err = daemon.Serve(c.Context, cfg, func(url string) {
		logger.Info("serving threads", "url", url, "data", string(d), "engine", c.String("engine"))
	})
	return serveExit(inUse(err, d))
}

// shownBy returns the configuration of the page of a server, whose rows may be nil.
func shownBy(c *cli.Context, cfg daemon.Config, s daemon.Serving, r *control.Store) page.Config {
	shown := page.Config{
		Log: s.Streams, Threads: s.Threads, Secrets: s.Secrets, Local: cfg.Addr == "" || httpd.Loopback(cfg.Addr),
		Names: c.StringSlice("page-host"), Closing: s.Closing, Budget: s.Budget, Doors: s.Doors,
		Logger: cfg.Logger, Session: writeSession, Harnesses: cfg.Harnesses,
	}
	if r != nil {
		shown.Room, shown.Mentions = r.Room, mentions
	}
	return shown
}

// addresses returns what serve listens on: an address, and the path of a socket. Either may be "".
func addresses(c *cli.Context) (addr, socket string, err error) {
	for _, at := range c.StringSlice("addr") {
		path, is := strings.CutPrefix(at, "unix:")
		switch {
		case is && socket != "" || !is && addr != "":
			return "", "", cmdline.Usage("--addr %q: want one HOST:PORT and one unix:PATH at most", at)
		case is:
			if socket, err = filepath.Abs(strings.TrimPrefix(path, "//")); err == nil {
				err = httpd.CheckSocket(socket)
			}
			if err != nil {
				return "", "", cmdline.Usage("--addr: %w", err)
			}
		case notAddress(at):
			return "", "", cmdline.Usage("--addr %q: want HOST:PORT or unix:PATH", at)
		default:
			addr = at
		}
	}
	return addr, socket, nil
}

// notAddress reports whether a flag has no host and port.
func notAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	return err != nil || port == ""
}

// accessLog opens the log of requests; nil for none.
func (p *program) accessLog(name string) (io.WriteCloser, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return struct {
			io.Writer
			io.Closer
		}{p.stderr, io.NopCloser(nil)}, nil // others still use stderr
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, cmdline.Fail(exitConfig, "--access-log: %w", err)
	}
	return f, nil
}
