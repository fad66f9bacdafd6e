package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/control/seal"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/member"
	"arbe.0sk.ar/runner/host/rows"
)

// houseFlags are the flags of a server with houses.
func houseFlags() []cli.Flag {
	return []cli.Flag{
		databaseFlag(),
		&cli.StringFlag{
			Name: "login-keys", TakesFile: true,
			Usage: "let members log in by an identity provider, whose keys (a JSON Web Key Set) are at `URL`, or in\n" +
				"a file; needs --database, --login-issuer and --login-audience",
		},
		&cli.StringFlag{Name: "login-issuer", Usage: "`ISSUER` (iss) that the provider's tokens have"},
		&cli.StringFlag{Name: "login-audience", Usage: "`AUDIENCE` (aud) that the provider's tokens have"},
		&cli.StringFlag{
			Name: "secret-keys", EnvVars: []string{"ARBE_SECRET_KEYS"}, TakesFile: true,
			Usage: "seal the secrets that owners of houses put with the keys in `FILE`, of arbe secret key new",
		},
		secretKMSFlag(),
	}
}

// houses opens the database that the flags name, nil for none, and the provider of its members' logins, nil for none.
func (p *program) houses(
	c *cli.Context, logger *slog.Logger,
) (r *control.Store, provider *member.Provider, err error) {
	url, keys := c.String("database"), c.String("login-keys")
	issuer, audience := c.String("login-issuer"), c.String("login-audience")
	switch {
	case keys == "" && issuer == "" && audience == "":
	case keys == "" || issuer == "" || audience == "" || url == "":
		return nil, nil,
			cmdline.Usage("--login-keys, --login-issuer and --login-audience need each other, and --database")
	default:
		if provider, err = member.NewProvider(keys, issuer, audience, logger); err != nil {
			return nil, nil, cmdline.Unread("", err)
		}
	}
	if url == "" {
		return nil, provider, p.command(c).keysFit()
	}
	r = &control.Store{URL: url, Logger: logger}
	if !c.Bool("local-boxes") {
		r.Barred = p.kinds.Unisolated()
	}
	if r.Keys, err = serverKeys(c, logger); err != nil {
		return nil, nil, err
	}
	if err := r.Try(c.Context); err != nil && !rows.IsUnserved(err) {
		return nil, nil, &cmdline.Exit{Status: exitConfig, Cause: err}
	}
	return r, provider, nil
}

// serverKeys returns the keyset that seals the secrets that members put, without a path for none. It has been read,
// unless a key management service that encrypts it does not answer: threads and runs do not need that.
func serverKeys(c *cli.Context, logger *slog.Logger) (seal.File, error) {
	path := c.String("secret-keys")
	if path == "" {
		return seal.File{}, nil
	}
	f, err := keysetOf(c).open()
	if err != nil {
		return f, err
	}
	switch _, err := seal.New(c.Context, f); {
	case errors.Is(err, fs.ErrNotExist):
		return f, cmdline.Unread("--secret-keys", err)
	case err != nil && f.KMS == nil:
		return f, &cmdline.Exit{Status: exitConfig, Cause: err}
	case err != nil:
		logger.Warn("keys of secrets not read: no secret can be put until they are", "error", err)
	}
	return f, nil
}

// project makes the rows follow a server's log until ctx is done.
func project(r *control.Store, s daemon.Serving) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if s.Threads == nil {
			r.Logger.Warn("rows do not follow the log: there is no index of threads")
			return nil
		}
		return r.Project(ctx, s.Threads, func(ctx context.Context, thread, run string) (bool, error) {
			_, is, err := s.Streams.ReceivedAt(ctx, thread, run+".running")
			return is, err
		})
	}
}
