package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/stream"
	"arbe.0sk.ar/runner/thread"
)

func (p *program) serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve threads from a log on this machine's disk",
		Description: `On a loopback address it needs no configuration: it makes its secret and keeps it, with the log, in the data folder, where the
other commands find it. On any other address DURABLE_STREAMS_SECRET (32 bytes or more) is required.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:8787", Usage: "listen on `HOST:PORT`; port 0 is any"},
			&cli.DurationFlag{Name: "long-poll", Value: 20 * time.Second, Usage: "how long a waiting reader is kept"},
			&cli.BoolFlag{Name: "reconcile", Usage: "settle runs that died, once a minute, as arbe reconcile does"},
			orphanAfterFlag(),
			cmdline.Verbose(),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cmdline.Usage("serve takes no arguments")
			}
			if c.Duration("long-poll") <= 0 {
				return cmdline.Usage("--long-poll: want more than 0")
			}
			d, err := data(c)
			if err != nil {
				return err
			}
			log := cmdline.Logger(p.stderr, c.Bool("verbose"))
			cfg := stream.Config{Addr: c.String("addr"), Data: d, LongPoll: c.Duration("long-poll"), Logger: log}
			if s := os.Getenv("DURABLE_STREAMS_SECRET"); s != "" {
				cfg.Secret = []byte(s)
			}
			if c.Bool("reconcile") {
				cfg.Beside = p.reconciling(d, c.Duration("orphan-after"), cfg)
			}
			err = stream.Serve(c.Context, cfg, func(url string) { log.Info("serving threads", "url", url, "data", string(d)) })
			if errors.Is(err, stream.ErrNoSecret) || errors.Is(err, stream.ErrShortSecret) {
				return &cmdline.Exit{Status: exitConfig, Cause: err}
			}
			return err
		},
	}
}

// scopes are the scopes of tokens as --scope names them.
var scopes = map[string]string{"read": stream.ScopeRead, "write": stream.ScopeWrite, "renew": stream.ScopeRenew}

func (p *program) tokenCommand() *cli.Command {
	mint := &cli.Command{
		Name:  "mint",
		Usage: "print a token for one thread",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "thread", Usage: "the thread's `ID` (required)"},
			&cli.StringFlag{Name: "scope", Value: "write", Usage: "write (includes reading), read, or renew"},
			&cli.StringFlag{Name: "run", Usage: "the `ID` of the only run whose signals may be posted with it"},
			&cli.DurationFlag{Name: "ttl", Value: stream.WriteTTL, Usage: "how long it lives"},
		},
		Action: func(c *cli.Context) error {
			scope, ok := scopes[c.String("scope")]
			switch {
			case c.Args().Present():
				return cmdline.Usage("token mint takes no arguments")
			case !thread.ValidThread(c.String("thread")):
				return cmdline.Usage("--thread %q: want 1 to 128 characters of A-Z a-z 0-9 _ -", c.String("thread"))
			case !ok:
				return cmdline.Usage("--scope %q: want write, read or renew", c.String("scope"))
			case c.String("run") != "" && !thread.ValidRun(c.String("run")):
				return cmdline.Usage("--run %q: want 1 to 128 characters of A-Z a-z 0-9 _ ~ -", c.String("run"))
			case c.Duration("ttl") <= 0:
				return cmdline.Usage("--ttl: want more than 0")
			}
			d, err := data(c)
			if err != nil {
				return err
			}
			key, err := secret(d)
			if err != nil {
				return err
			}
			token, err := stream.Mint(key, stream.Grant{
				Thread: c.String("thread"), Scope: []string{scope}, Run: c.String("run"), Until: time.Now().Add(c.Duration("ttl")),
			})
			if err != nil {
				return err
			}
			fmt.Fprintln(p.stdout, token)
			return nil
		},
	}
	return &cli.Command{Name: "token", Usage: "make tokens for threads", Subcommands: []*cli.Command{mint}}
}
