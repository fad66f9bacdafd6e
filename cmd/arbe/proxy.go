package main

import (
	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/httpd"
	"arbe.0sk.ar/runner/host/proxy"
)

func (p *program) proxyCommand() *cli.Command {
	return &cli.Command{
		Name:  "proxy",
		Usage: "forward requests to a thread server elsewhere",
		Description: `For boxes that can't reach the thread server. The proxy forwards requests and answers
unchanged. It needs the server's address and no secret: the server alone verifies tokens.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:8788", Usage: "listen on `HOST:PORT`; port 0 is any"},
			&cli.StringFlag{
				Name: "upstream", EnvVars: []string{"ARBE_WORKER_URL"},
				Usage: "the thread server's `URL` (required)",
			},
			cmdline.Verbose(),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return cmdline.Usage("proxy takes no arguments")
			}
			if notAddress(c.String("addr")) {
				return cmdline.Usage("--addr %q: want HOST:PORT", c.String("addr"))
			}
			if c.String("upstream") == "" {
				return cmdline.Usage("no thread server: use --upstream, or set ARBE_WORKER_URL")
			}
			upstream, err := proxy.ParseUpstream(c.String("upstream"))
			if err != nil {
				return cmdline.Usage("--upstream: %w", err)
			}
			log := cmdline.Logger(p.stderr, c.Bool("verbose"))
			front := proxy.Proxy{Upstream: upstream, Closing: c.Context, Logger: log}
			// A request may need a second connection, to the server.
			most := daemon.Limits{}.MostConnections(2)
			err = httpd.Serve(c.Context, c.String("addr"), most, front.Handler(), log, func(url string) {
				log.Info("forwarding to a thread server", "url", url, "upstream", upstream.String())
			})
			return inUse(err, "")
		},
	}
}
