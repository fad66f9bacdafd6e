package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/cmd/internal/stdin"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/control/kms"
	"arbe.0sk.ar/runner/host/control/seal"
)

func (p *program) secretCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append([]cli.Flag{databaseFlag(), houseFlag()}, more...)
	}
	return &cli.Command{
		Name: "secret", Usage: "keep the secrets of houses, and the keys that seal them",
		Subcommands: []*cli.Command{
			{
				Name: "set", ArgsUsage: "NAME", Flags: flags(secretKeysFlag(), secretKMSFlag()),
				Usage: "store stdin, without the newline at its end, as the secret NAME of a house; what is typed\n" +
					"is not shown",
				Action: p.withSecrets(true, p.setSecret),
			},
			{
				Name: "list", Usage: "print the names of a house's secrets", Flags: flags(),
				Action: p.withSecrets(false, p.listSecrets),
			},
			{
				Name: "rm", Usage: "delete the secret NAME of a house", ArgsUsage: "NAME", Flags: flags(),
				Action: p.withSecrets(true, p.removeSecret),
			},
			{
				Name: "reseal", Flags: []cli.Flag{databaseFlag(), secretKeysFlag(), secretKMSFlag()},
				Usage:  "seal the secrets of all houses with the primary key, after a rotation; print their number",
				Action: p.reseal,
			},
			p.secretKeyCommand(),
		},
	}
}

// secretKeysFlag returns the flag of the keyset that seals secrets.
func secretKeysFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "secret-keys", EnvVars: []string{"ARBE_SECRET_KEYS"}, TakesFile: true,
		Usage: "open secrets with the keys in `FILE`, of arbe secret key new",
	}
}

// secretKMSFlag returns the flag of the service that encrypts the keyset.
func secretKMSFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "secret-kms", EnvVars: []string{"ARBE_SECRET_KMS"},
		Usage: "decrypt that file with the `KEY` of a key management service: hcvault://MOUNT/keys/NAME, in the\n" +
			"Vault of VAULT_ADDR and VAULT_TOKEN",
	}
}

// keyset names the keys of secrets: their file and the service that encrypts it, as the flags have them; "" for none.
type keyset struct{ file, kms string }

func keysetOf(c *cli.Context) keyset { return keyset{c.String("secret-keys"), c.String("secret-kms")} }

// open returns the keyset's file, with its service.
func (k keyset) open() (seal.File, error) {
	f := seal.File{Path: k.file}
	if k.kms != "" {
		key, err := kms.Open(k.kms)
		if err != nil {
			return f, &cmdline.Exit{Status: exitConfig, Cause: err}
		}
		f.KMS = key
	}
	return f, nil
}

// openDatabase opens the database that the flags name.
func openDatabase(ctx context.Context, url string) (*control.DB, error) {
	if url == "" {
		return nil, errNoDatabase()
	}
	db, err := control.Open(ctx, url, control.Config{})
	if err != nil {
		return nil, databaseExit(err)
	}
	return db, nil
}

// vault returns the secrets of a database, with these keys.
func (k keyset) vault(ctx context.Context, db *control.DB) (control.Vault, error) {
	if k.file == "" {
		err := errors.New("no keys for the secrets: set ARBE_SECRET_KEYS or use --secret-keys")
		return control.Vault{}, &cmdline.Exit{Status: exitConfig, Cause: err}
	}
	f, err := k.open()
	if err != nil {
		return control.Vault{}, err
	}
	s, err := seal.New(ctx, f)
	if errors.Is(err, fs.ErrNotExist) {
		return control.Vault{}, cmdline.Unread("the keys for the secrets", err)
	}
	if err != nil {
		return control.Vault{}, &cmdline.Exit{Status: exitConfig, Cause: err}
	}
	return control.Vault{DB: db, Sealer: s}, nil
}

// secrets opens the secrets of an environment.
func (h host) secrets(ctx context.Context, environment string) (map[string]string, error) {
	if h.database == nil {
		return nil, errNoDatabase()
	}
	db, err := h.database(ctx)
	if err != nil {
		return nil, err
	}
	v, err := h.keys.vault(ctx, db)
	if err != nil {
		return nil, err
	}
	all, err := v.Variables(ctx, environment)
	env := map[string]string{}
	for _, one := range all {
		env[one.Name] = one.Value.Reveal()
	}
	return env, err
}

// withSecrets returns the action of a command about the secrets of a house; named is set where it takes a NAME.
func (p *program) withSecrets(
	named bool, act func(c *cli.Context, db *control.DB, house, name string) error,
) cli.ActionFunc {
	return func(c *cli.Context) error {
		switch house := c.String("house"); {
		case named && (c.NArg() != 1 || c.Args().First() == ""):
			return cmdline.Usage("want the NAME of the secret")
		case !named && c.Args().Present():
			return cmdline.Usage("takes no arguments")
		case house == "":
			return cmdline.Usage("want the --house of the secret")
		}
		db, err := openDatabase(c.Context, c.String("database"))
		if err != nil {
			return err
		}
		defer db.Close()
		h, err := findHouse(c.Context, db.Host(), c.String("house"))
		if err != nil {
			return databaseExit(err)
		}
		return databaseExit(act(c, db, h.ID, c.Args().First()))
	}
}

// setSecret stores stdin as a secret.
func (p *program) setSecret(c *cli.Context, db *control.DB, house, name string) error {
	v, err := keysetOf(c).vault(c.Context, db)
	if err != nil {
		return err
	}
	value, err := p.secretValue(c.Context, name)
	if err != nil {
		return err
	}
	value = bytes.TrimSuffix(value, []byte("\n"))
	_, err = v.Put(c.Context, db.Host(), house, name, value)
	return err
}

// secretValue reads a secret's value from stdin. At a terminal it is not shown, and Enter ends it: a value of several
// lines is pasted.
func (p *program) secretValue(ctx context.Context, name string) ([]byte, error) {
	if p.types() {
		fmt.Fprintf(p.stderr, "value of %s, which is not shown; Enter ends it: ", name)
		next, done := p.texts(ctx, seal.MaxValue+2, false)
		text, err := next()
		fmt.Fprintln(p.stderr)
		return []byte(text), errors.Join(err, done.Close())
	}
	in := stdin.Reader(ctx, p.stdin)
	value, err := io.ReadAll(io.LimitReader(in, seal.MaxValue+3)) // a newline, and one byte too many
	if err != nil {
		err = fmt.Errorf("read stdin: %w", err)
	}
	return value, err
}

// listSecrets prints the names of a house's secrets.
func (p *program) listSecrets(c *cli.Context, db *control.DB, house, _ string) error {
	all, err := db.Host().Secrets(c.Context, house)
	for _, s := range all {
		fmt.Fprintln(p.stdout, s.Name)
	}
	return err
}

// removeSecret deletes a secret.
func (p *program) removeSecret(c *cli.Context, db *control.DB, house, name string) error {
	return db.Host().DeleteSecret(c.Context, house, name)
}

// reseal seals all secrets with the primary key.
func (p *program) reseal(c *cli.Context) error {
	if c.Args().Present() {
		return cmdline.Usage("takes no arguments")
	}
	db, err := openDatabase(c.Context, c.String("database"))
	if err != nil {
		return err
	}
	defer db.Close()
	v, err := keysetOf(c).vault(c.Context, db)
	if err != nil {
		return err
	}
	n, err := v.Reseal(c.Context)
	if err == nil {
		fmt.Fprintln(p.stdout, n)
	}
	return databaseExit(err)
}

// secretKeyCommand has the commands about keysets.
func (p *program) secretKeyCommand() *cli.Command {
	service := []cli.Flag{secretKMSFlag()}
	return &cli.Command{
		Name:  "key",
		Usage: "make, rotate, wrap and list the keys in a file",
		Description: `The file is a keyset of Tink. Without it no sealed secret can be opened again: keep a copy apart
from the database. It has to be for its owner alone (mode 0600), unless a key management service encrypts it.`,
		Subcommands: []*cli.Command{
			{
				Name: "new", Usage: "make a file with one key; an existing file is not replaced", ArgsUsage: "FILE",
				Flags:  service,
				Action: keysetAction(func(c *cli.Context, f seal.File) error { return f.Create(c.Context) }),
			},
			{
				Name: "rotate", ArgsUsage: "FILE", Flags: service,
				Usage:  "add a key, which seals from now on; the older ones still open",
				Action: keysetAction(func(c *cli.Context, f seal.File) error { return f.Rotate(c.Context) }),
			},
			{
				Name: "wrap", ArgsUsage: "FILE", Flags: service,
				Usage:  "encrypt a file that is in cleartext with the key of --secret-kms",
				Action: keysetAction(wrapKeys),
			},
			{
				Name: "list", Usage: "print the ids of the keys; primary is the one that seals", ArgsUsage: "FILE",
				Flags: service, Action: keysetAction(p.listKeys),
			},
		},
	}
}

// wrapKeys encrypts a keyset with a key management service.
func wrapKeys(c *cli.Context, f seal.File) error {
	if f.KMS == nil {
		return cmdline.Usage("want --secret-kms: the key that encrypts the file")
	}
	return f.Wrap(c.Context)
}

// listKeys prints the ids of a keyset.
func (p *program) listKeys(c *cli.Context, f seal.File) error {
	keys, err := f.Keys(c.Context)
	for _, k := range keys {
		use := "opens"
		if k.Primary {
			use = "primary"
		}
		fmt.Fprintf(p.stdout, "%d\t%s\n", k.ID, use)
	}
	return err
}

// keysetAction returns the action of a command about one keyset.
func keysetAction(act func(*cli.Context, seal.File) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() != 1 || c.Args().First() == "" {
			return cmdline.Usage("want the FILE of the keyset")
		}
		f, err := keyset{c.Args().First(), c.String("secret-kms")}.open()
		if err != nil {
			return err
		}
		err = act(c, f)
		if errors.Is(err, fs.ErrNotExist) {
			return cmdline.Unread("", err)
		}
		if err == nil || errors.As(err, new(*cmdline.Exit)) {
			return err
		}
		return &cmdline.Exit{Status: exitConfig, Cause: err}
	}
}
