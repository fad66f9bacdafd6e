package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/internal/pause"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

const (
	healthTimeout = 5 * time.Second        // of one question
	healthAgain   = 100 * time.Millisecond // between two
)

func (p *program) healthCommand() *cli.Command {
	return &cli.Command{
		Name:  "health",
		Usage: "ask the server of the data folder whether it serves: exit status 0, else 1",
		Description: `For the checks of containers and services. It needs no token, and an answer within 5 s. A
server that serves and can't append, as on a full disk, is healthy: a restart would change nothing, and
/readyz reports it.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "ask the server, or the arbe proxy, at `URL` instead"},
			&cli.DurationFlag{Name: "wait", Usage: "ask again for `DURATION`, until the server serves"},
		},
		Action: p.healthAction,
	}
}

func (p *program) healthAction(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("serve health takes no arguments")
	}
	at, d := c.String("url"), daemon.Data("")
	if at != "" && client.CheckAddress(at) != nil {
		return cmdline.Usage("--url: want http://HOST, https://HOST or unix:///PATH") // it may have a password
	}
	if at == "" {
		var err error
		if d, err = p.command(c).data(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("wait"))
	defer cancel()
	for {
		found, err := p.healthy(c.Context, at, d)
		if err == nil {
			fmt.Fprintln(p.stdout, "ok", found)
			return nil
		}
		if !pause.For(ctx, healthAgain) {
			return &cmdline.Exit{Status: 1, Cause: err}
		}
	}
}

// healthy asks a server once whether it serves, and returns its address: at, or "" for that of the data folder.
func (p *program) healthy(ctx context.Context, at string, d daemon.Data) (string, error) {
	asked := p.http
	if at == "" {
		var err error
		at, err = d.Address()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("no server runs in data folder %s", d)
		}
		if err != nil {
			return "", err
		}
		// The address is one of this machine, which no certificate has to name. Nothing secret is sent.
		asked = client.NewHTTP()
		own := asked.Transport.(*http.Transport)
		own.Proxy, own.TLSClientConfig = nil, &tls.Config{InsecureSkipVerify: true}
		defer own.CloseIdleConnections()
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	h, err := (&client.Client{Base: thread.BaseURL(at), HTTP: asked}).Health(ctx)
	if err == nil && h.Status != "ok" {
		err = fmt.Errorf("%s answers, but is no thread server", at)
	}
	return at, err
}
