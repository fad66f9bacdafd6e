package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/log/engine"
	"arbe.0sk.ar/runner/host/log/jetstream"
	"arbe.0sk.ar/runner/host/stream"
)

func (p *program) serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve threads, from a log on this machine's disk or in a NATS cluster",
		Description: `On a loopback address it needs no configuration: it makes its secret and keeps it, with the log, in the data folder, where the
other commands find it. On any other address DURABLE_STREAMS_SECRET (32 bytes or more) is required. With two secrets, a comma between them, the first
signs and both verify: so a secret is changed without a pause. docs/SERVE.md has the rest.`,
		Subcommands: []*cli.Command{p.backupCommand(), p.restoreCommand()},
		Flags: slices.Concat([]cli.Flag{
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:8787", Usage: "listen on `HOST:PORT`; port 0 is any"},
			&cli.DurationFlag{Name: "long-poll", Value: 20 * time.Second, Usage: "how long a waiting reader is kept"},
			&cli.StringFlag{Name: "tls-cert", Usage: "serve TLS with the certificate in `FILE` (PEM), which may change", TakesFile: true},
			&cli.StringFlag{Name: "tls-key", Usage: "the certificate's key, in `FILE` (PEM)", TakesFile: true},
			&cli.Float64Flag{Name: "rate", Usage: "requests a second for one token; 0 is no limit"},
			&cli.IntFlag{Name: "max-connections", Value: 20_000, Usage: "open at the same time; those above are closed at once"},
			&cli.GenericFlag{Name: "quota", Value: new(cmdline.Size), Usage: "`BYTES` (as 1GiB) that one stream may hold; 0 is no limit"},
			&cli.GenericFlag{Name: "token-quota", Value: new(cmdline.Size), Usage: "`BYTES` that the holder of one token may post within an hour; 0 is no limit"},
			&cli.GenericFlag{Name: "memory-budget", Value: new(cmdline.Size), Usage: "`BYTES` (as 256MiB) that all requests may hold at the same time; 0 is a quarter of the memory limit"},
			&cli.StringFlag{Name: "access-log", Usage: "write a line of JSON for each request to `FILE`, - for stderr", TakesFile: true},
			&cli.StringFlag{Name: "debug-addr", Usage: "serve profiles (pprof) on `HOST:PORT`, a loopback address"},
			&cli.DurationFlag{Name: "heartbeat-retention", Usage: "take away the heartbeats of runs that ended so long ago, but for each run's last one; 0 keeps all"},
			&cli.BoolFlag{Name: "insecure-loopback", Usage: "serve /v1/stream/ without tokens, on a loopback address: for the protocol's test suites only"},
			&cli.BoolFlag{Name: "reconcile", Usage: "settle runs that died, once a minute, as arbe reconcile does"},
			cmdline.Verbose(),
		}, reconcileFlags(), natsFlags()),
		Action: p.serve,
	}
}

// natsFlags say where a cluster is that keeps the log.
func natsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "engine", Value: "pebble", Usage: "what keeps the log: pebble, in the data folder, or nats, a JetStream cluster"},
		&cli.StringFlag{Name: "nats-url", EnvVars: []string{"ARBE_NATS_URL"}, Usage: "the cluster's servers, `URL`s with commas between; in the environment where a password is in it"},
		&cli.StringFlag{Name: "nats-creds", Usage: "a credentials `FILE` for it", TakesFile: true},
		&cli.StringFlag{Name: "nats-prefix", Value: "arbe", Usage: "of the streams' names and subjects there"},
		&cli.IntFlag{Name: "nats-shards", Value: 16, Usage: "how many streams to make, where there are none"},
		&cli.IntFlag{Name: "nats-replicas", Value: 3, Usage: "of each stream that is made"},
		&cli.BoolFlag{Name: "nats-allow-unsafe", Usage: "go on where the cluster can lose what it has acknowledged"},
	}
}

// gcPercent is for a process that keeps little and throws much away: with Go's default of 100 it would spend a tenth of its time on that.
const gcPercent = 300

// serve runs a server until it is told to end.
func (p *program) serve(c *cli.Context) (err error) {
	switch engine := c.String("engine"); {
	case c.Args().Present():
		return cmdline.Usage("serve takes no arguments")
	case c.Duration("long-poll") <= 0:
		return cmdline.Usage("--long-poll: want more than 0")
	case !(c.Float64("rate") >= 0) || c.Int("max-connections") < 1 || c.Duration("heartbeat-retention") < 0:
		return cmdline.Usage("--rate, --max-connections, --heartbeat-retention: want no less than 0, and at least one connection")
	case engine != "pebble" && engine != "nats":
		return cmdline.Usage("--engine %q: want pebble or nats", engine)
	case (engine == "nats") != (c.String("nats-url") != "") && (engine == "nats" || c.IsSet("nats-url")):
		return cmdline.Usage("--engine nats and --nats-url need each other")
	case (c.String("tls-cert") == "") != (c.String("tls-key") == ""):
		return cmdline.Usage("--tls-cert and --tls-key need each other")
	}
	d, err := data(c)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(stream.MemoryLimit() / 5 * 4) // the rest is for what Go does not count: stacks of threads, pages of files
	}
	log := cmdline.Logger(p.stderr, c.Bool("verbose"))
	cfg := stream.Config{
		Addr: c.String("addr"), Data: d, LongPoll: c.Duration("long-poll"), Budget: cmdline.SizeOf(c, "memory-budget"), Open: c.Bool("insecure-loopback"),
		Limits: stream.Limits{Rate: c.Float64("rate"), Connections: c.Int("max-connections"), StreamBytes: cmdline.SizeOf(c, "quota"), TokenBytes: cmdline.SizeOf(c, "token-quota")},
		Rules:  stream.Rules{Heartbeats: c.Duration("heartbeat-retention")},
		Cert:   c.String("tls-cert"), Key: c.String("tls-key"), Debug: c.String("debug-addr"), Version: version, Logger: log,
	}
	if os.Getenv("DURABLE_STREAMS_SECRET") != "" {
		if cfg.Secrets, err = secrets(d); err != nil {
			return err
		}
	}
	if c.String("engine") == "nats" {
		cfg.NATS = &jetstream.Config{
			URL: c.String("nats-url"), Credentials: c.String("nats-creds"), Prefix: c.String("nats-prefix"), Shards: c.Int("nats-shards"),
			Replicas: c.Int("nats-replicas"), AllowUnsafe: c.Bool("nats-allow-unsafe"), Logger: log,
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
	if c.Bool("reconcile") {
		cfg.Beside = p.reconciling(c, d, cfg)
	}
	err = stream.Serve(c.Context, cfg, func(url string) {
		log.Info("serving threads", "url", url, "data", string(d), "engine", c.String("engine"))
	})
	return serveExit(err)
}

// serveExit is the end of a server with its exit status.
func serveExit(err error) error {
	for _, config := range []error{stream.ErrNoSecret, stream.ErrOpen, stream.ErrShortSecret, stream.ErrDebugAddress} {
		if errors.Is(err, config) {
			return &cmdline.Exit{Status: exitConfig, Cause: err}
		}
	}
	var unsafe *jetstream.UnsafeError
	switch {
	case errors.As(err, &unsafe):
		return &cmdline.Exit{Status: exitConfig, Cause: err}
	case errors.Is(err, engine.ErrFailed):
		err = fmt.Errorf("%w: nothing that was acknowledged is lost; see to the disk, and start the server again", err)
		return &cmdline.Exit{Status: exitDisk, Cause: err}
	}
	return err
}

// accessLog is where a line for each request goes; nil for nowhere.
func (p *program) accessLog(name string) (io.WriteCloser, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return keptOpen{p.stderr}, nil
	}
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// keptOpen is a writer that others still need.
type keptOpen struct{ io.Writer }

// Close does nothing.
func (keptOpen) Close() error { return nil }
