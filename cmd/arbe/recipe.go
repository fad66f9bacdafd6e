package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"arbe.0sk.ar/runner/cmd/internal/cmdline"
	"arbe.0sk.ar/runner/host/launch"
	"arbe.0sk.ar/runner/host/recipe"
	"arbe.0sk.ar/runner/host/rows"
	"arbe.0sk.ar/runner/host/sandbox"
	"arbe.0sk.ar/runner/thread"
)

// environmentFlags are the flags of a launch that choose how its box is made.
func (p *program) environmentFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "environment-file", TakesFile: true,
			Usage: "make the box by the environment in `FILE`, of this host; other flags outrank it",
		},
		&cli.StringFlag{
			Name: "image",
			Usage: "build the box from the `IMAGE` of a registry, instead of a snapshot: " +
				p.kinds.For(sandbox.OptionImage),
		},
	}
}

// follow makes a launch's box by its environment, and returns the provider's name. Flags outrank the environment.
func (p *program) follow(ctx context.Context, h host, o *order) (string, error) {
	switch {
	case o.place.House != "" && o.file != "":
		const text = "--environment-file: the thread is of a house, whose environment %s its box has"
		return "", cmdline.Usage(text, o.place.Environment.ID)
	case o.place.House != "":
		return o.place.Provider, databaseExit(o.to.Follow(&o.Task, o.place))
	case o.file == "":
		return o.provider, nil
	}
	r, err := p.readRecipe(ctx, o.file, p.runtimes().ParseHost)
	if err != nil {
		return "", err
	}
	if !o.providerSet {
		o.provider = cmp.Or(r.Runtime, o.provider)
	}
	return o.provider, followFile(h, &o.Task, r, filepath.Dir(o.file))
}

// followFile makes a task's box by an environment in a file of this host, of which dir is the folder. Its secrets are
// variables of this process's environment.
func followFile(h host, t *launch.Task, r recipe.Recipe, dir string) error {
	t.Follow(r)
	for i := range t.Make.Repositories {
		t.Make.Repositories[i].Token = t.Box.Token
	}
	for _, f := range r.Files {
		if f.Host == "" {
			continue
		}
		content, err := os.ReadFile(hostPath(dir, f.Host))
		if err != nil {
			return cmdline.Unread("--environment-file: the file "+f.Path, err)
		}
		t.Make.Files = append(t.Make.Files, launch.File{
			Path: f.Path, Content: content, Mode: launch.ModeOf(f), Sensitive: f.Sensitive,
		})
	}
	t.Secrets = func(context.Context) (map[string]string, error) { return ownSecrets(r.Secrets) }
	if t.Box.Repo != "" || t.Dir != nil {
		return nil // they replace the environment's repositories and folders
	}
	for i, f := range r.Folders {
		n := copied{Thread: t.Thread, Path: hostPath(dir, f.Host), Exclude: f.Exclude, At: f.Path}
		sync := f.Access == recipe.AccessSync
		from, err := h.folders.tree(fmt.Sprintf("--environment-file: folders[%d]", i), n, sync)
		if err != nil {
			return err
		}
		t.Make.Folders = append(t.Make.Folders, launch.Folder{Tree: from, Path: f.Path, Sync: sync})
		if sync {
			if t.After == nil {
				t.After = &thread.After{}
			}
			t.After.Sync = cmp.Or(t.After.Sync, &thread.AfterSync{})
		}
	}
	return nil
}

// hostPath returns the path of this host that an environment in dir names.
func hostPath(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// ownSecrets returns the secrets that are variables of this process's environment. It is an error if a required one is
// missing.
func ownSecrets(secrets []rows.Binding) (map[string]string, error) {
	values := map[string]string{}
	var missing []string
	for _, s := range secrets {
		value, has := os.LookupEnv(s.Name)
		switch {
		case has:
			values[s.Name] = value
		case s.Required:
			missing = append(missing, s.Name)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("%w: %s: set the variable here", rows.ErrMissing, strings.Join(missing, ", "))
	}
	return values, nil
}
