// Command arbe is the host's side of a run: it serves threads, signs their tokens, launches runs into boxes, ends dead
// runs, and shows threads to people.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	arbe "arbe.0sk.ar/runner"
	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/control"
	"arbe.0sk.ar/runner/host/daemon"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/host/sandbox/providers"
	"arbe.0sk.ar/runner/host/token"
	"arbe.0sk.ar/runner/thread/client"
)

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

// program is the state that the commands share.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	http           *http.Client // of all threads: one pool of connections
	kinds          sandbox.Kinds
}

// run runs the program and returns its exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{
		stdin: stdin, stdout: cmdline.NewOutput(stdout), stderr: stderr,
		http: client.NewHTTPOf("arbe/" + arbe.This().String()), kinds: providers.All(),
	}
	ctx, stop := cmdline.UntilSignal(context.Background())
	defer stop()
	app := &cli.App{
		Name:      "arbe",
		Usage:     "serve threads, launch coding agents on them, and show their runs",
		UsageText: "arbe COMMAND [flags]",
		Description: strings.TrimSpace(`
A thread is a durable log of a coding agent's work. The first run needs no configuration:

  arbe serve &
  arbe thread post $(arbe thread new) "hello"

On the server's machine the commands find its address and secret in the data folder. For a server elsewhere set
ARBE_STREAM_URL, and ARBE_STREAM_TOKEN or DURABLE_STREAMS_SECRET.`),
		Version: arbe.This().String(),
		Reader:  stdin, Writer: p.stdout, ErrWriter: stderr,
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "data", EnvVars: []string{"ARBE_DATA"}, DefaultText: "~/.local/share/arbe",
				Usage: "keep the log, the secret and the local boxes in `FOLDER`", TakesFile: true,
			},
		},
		Commands: []*cli.Command{
			p.serveCommand(), p.proxyCommand(), p.tokenCommand(), p.threadCommand(), p.launchCommand(), p.runCommand(),
			p.execCommand(), p.delegateCommand(), p.provisionCommand(), p.dispatchCommand(), p.listCommand("ls"),
			p.openCommand(), p.shareCommand(), p.sayCommand(), p.cancelCommand(),
			p.reconcileCommand(), p.sandboxCommand(), p.dbCommand(), p.houseCommand(), p.memberCommand(),
			p.agentCommand(), p.envCommand(), p.secretCommand(),
			cmdline.VersionCommand("arbe", formats),
		},
	}
	return cmdline.Run(ctx, app, args, values(p))
}

// formats returns the numbers of the formats that this program writes. What a later one has written it refuses.
func formats() (any, error) {
	schema, err := control.Schema()
	return struct {
		daemon.Formats
		Schema int64 `json:"schema"` // of the database: its newest migration
	}{daemon.ThisFormats(), schema}, err
}

// dataFolder returns the data folder where --data is dir.
func dataFolder(dir string) (daemon.Data, error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		return daemon.Data(abs), err
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return daemon.Data(filepath.Join(dir, "arbe")), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", cmdline.Fail(exitConfig, "no data folder: use --data, or set ARBE_DATA or HOME")
	}
	return daemon.Data(filepath.Join(home, ".local", "share", "arbe")), nil
}

// secrets returns the secrets that verify tokens. The first one signs them.
func secrets(d daemon.Data) ([][]byte, error) {
	if s := os.Getenv("DURABLE_STREAMS_SECRET"); s != "" {
		keys, err := token.ParseSecrets(s)
		if err != nil {
			return nil, cmdline.Fail(exitConfig, "DURABLE_STREAMS_SECRET: %w", err)
		}
		return keys, nil
	}
	keys, err := d.Secrets()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no secret to sign tokens: set DURABLE_STREAMS_SECRET, "+
			"or start arbe serve on this machine (data folder %s)", d)
	}
	if err != nil {
		return nil, &cmdline.Exit{Status: exitConfig, Cause: err}
	}
	return keys, nil
}

// secret returns the secret that signs tokens.
func secret(d daemon.Data) ([]byte, error) {
	keys, err := secrets(d)
	if err != nil {
		return nil, err
	}
	return keys[0], nil
}

// serverURL returns the address of the thread server.
func serverURL(d daemon.Data) (string, error) {
	if base := os.Getenv("ARBE_STREAM_URL"); base != "" {
		if err := client.CheckAddress(base); err != nil {
			return "", cmdline.Fail(exitConfig, "ARBE_STREAM_URL is %w", err)
		}
		return base, nil
	}
	address, err := d.Address()
	if errors.Is(err, fs.ErrNotExist) {
		err = cmdline.Fail(exitConfig, "no thread server: set ARBE_STREAM_URL, "+
			"or start arbe serve on this machine (data folder %s)", d)
	}
	return address, err
}
