package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/server"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/internal/durable"
	"arbe.0sk.ar/runner/thread"
	"arbe.0sk.ar/runner/thread/client"
)

func (p *program) backupCommand() *cli.Command {
	return &cli.Command{
		Name:      "backup",
		Usage:     "copy the log to FILE (- for stdout) while the server runs",
		ArgsUsage: "FILE",
		Description: `The copy has every entry that was acknowledged before it began. It is a tar file, checked
while it is written: FILE appears when it is whole. If no server runs, the log in the data folder is copied.

The copy does not have the secret that signs tokens.`,
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "force", Usage: "replace FILE if it exists"}},
		Action: p.backupAction,
	}
}

func (p *program) backupAction(c *cli.Context) error {
	if c.NArg() != 1 || c.Args().First() == "" {
		return cmdline.Usage("want one file, or -")
	}
	d, err := p.command(c).data()
	if err != nil {
		return err
	}
	source, err := p.backupSource(d)
	if err != nil {
		return err
	}
	file := c.Args().First()
	if file == "-" {
		b, err := receive(c.Context, source, p.stdout)
		if err == nil {
			fmt.Fprintf(p.stderr, "stdout: %d bytes in %d files\n", b.Bytes, b.Files)
		}
		return err
	}
	if _, err := os.Lstat(file); err == nil && !c.Bool("force") {
		return cmdline.Usage("%s exists: use --force to replace it", file)
	}
	b, err := receiveFile(c.Context, source, file)
	if err == nil {
		fmt.Fprintf(p.stdout, "%s: %d bytes in %d files\n", file, b.Bytes, b.Files)
	}
	return err
}

// backupSource returns a func that writes a backup: of the running server, or of the log in the data folder if no
// server runs.
func (p *program) backupSource(d daemon.Data) (func(context.Context, io.Writer) error, error) {
	local := func(ctx context.Context, w io.Writer) error {
		err := d.Backup(ctx, w, cmdline.Logger(p.stderr, false))
		if errors.Is(err, fs.ErrNotExist) {
			err = &cmdline.Exit{Status: exitConfig, Cause: err}
		}
		return err
	}
	elsewhere := os.Getenv("ARBE_STREAM_URL") != ""
	if _, err := d.Address(); !elsewhere && errors.Is(err, fs.ErrNotExist) {
		return local, nil
	}
	url, err := serverURL(d)
	if err != nil {
		return nil, err
	}
	key, err := secret(d)
	if err != nil {
		return nil, err
	}
	cl := &client.Client{Base: thread.BaseURL(url), Token: func() (string, error) {
		return signed(key, token.SubjectAdmin, token.ScopeBackup, 10*time.Minute)
	}}
	return func(ctx context.Context, w io.Writer) error {
		body, err := ask(ctx, cl, http.MethodGet, server.BackupPath, nil)
		if !elsewhere && errors.Is(err, syscall.ECONNREFUSED) {
			return local(ctx, w) // the address is left of a server that was killed
		}
		if err != nil {
			return &cmdline.Exit{Status: exitNoReach, Cause: err}
		}
		defer body.Close() // it was only read
		if _, err = io.Copy(w, body); err != nil {
			return cmdline.Fail(exitNoReach, "the backup is incomplete: %w; try again", err)
		}
		return nil
	}, nil
}

// receive copies a backup to w and checks it.
func receive(ctx context.Context, source func(context.Context, io.Writer) error, w io.Writer) (daemon.Backup, error) {
	r, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := source(ctx, in)
		in.CloseWithError(err)
		done <- err
	}()
	b, err := daemon.CheckBackup(ctx, io.TeeReader(r, w))
	r.CloseWithError(err) // ends the source if it still writes
	sent := <-done
	switch {
	case ctx.Err() != nil:
		return b, errors.New("interrupted: no backup was written")
	case err != nil && sent != nil && !errors.Is(sent, err):
		return b, sent
	}
	return b, err
}

// receiveFile writes a backup to a file, which gets its name when the backup is whole and on disk.
func receiveFile(
	ctx context.Context, source func(context.Context, io.Writer) error, file string,
) (b daemon.Backup, err error) {
	partial := file + ".partial"
	if err := os.Remove(partial); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	f, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return b, err
	}
	b, err = receive(ctx, source, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return b, errors.Join(err, os.Remove(partial))
	}
	return b, durable.Rename(partial, file)
}

func (p *program) restoreCommand() *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Usage:     "restore the log from a backup in FILE (- for stdin) into a data folder without a log",
		ArgsUsage: "FILE",
		Description: `The log is restored whole or not at all. A backup does not have the secret that signs
tokens: keep it elsewhere and provide it in DURABLE_STREAMS_SECRET or in the file "secret" of the data folder.
With another secret the server refuses the tokens that were signed before.`,
		Action: p.restoreAction,
	}
}

func (p *program) restoreAction(c *cli.Context) error {
	if c.NArg() != 1 || c.Args().First() == "" {
		return cmdline.Usage("want one file, or -")
	}
	d, err := p.command(c).data()
	if err != nil {
		return err
	}
	in, err := p.open(c.Context, c.Args().First(), "a backup")
	if err != nil {
		return err
	}
	defer in.Close() // it was only read
	b, err := d.Restore(c.Context, in)
	switch {
	case errors.Is(err, daemon.ErrLogExists):
		return &cmdline.Exit{Status: exitConfig, Cause: err}
	case err != nil:
		return err
	}
	fmt.Fprintf(p.stdout, "%s: %d bytes in %d files, as of %s\n", d, b.Bytes, b.Files, b.Made.Format(time.RFC3339))
	return nil
}
