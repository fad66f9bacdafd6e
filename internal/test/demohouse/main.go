// Command demohouse shows a house: rows on a Postgres of its own, an owner, a bot that runs on pi, an environment with
// a secret, and one run of the real pi in a box on this machine, which gets the key of the scripted model as that
// secret. "make demo-house" calls it with both binaries built, and pi and Postgres installed. It leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/demo/stage"
	"arbe.0sk.ar/runner/internal/test/postgres"
)

func main() {
	stay := flag.Bool("stay", false, "keep the server until Ctrl-C")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: demohouse [-stay] BIN: the folder that has arbe and arbe-pi-runner")
		os.Exit(64)
	}
	os.Exit(stage.Main(func(ctx context.Context, bin string) error { return demo(ctx, bin, *stay) }, flag.Arg(0)))
}

func demo(ctx context.Context, bin string, stay bool) (err error) {
	s, err := stage.New(ctx, bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	database, err := startPostgres(ctx, s)
	if err != nil {
		return err
	}
	key := ""
	s.Env = slices.DeleteFunc(s.Env, func(v string) bool { // the agent gets it as a secret alone
		value, is := strings.CutPrefix(v, agents.KeyVar+"=")
		if is {
			key = value
		}
		return is
	})
	if os.Getenv("COLUMNS") == "" {
		s.Env = append(s.Env, "COLUMNS=100") // tables, as on a terminal
	}
	s.Env = append(s.Env, "ARBE_DATABASE="+database, "ARBE_SECRET_KEYS="+filepath.Join(s.Work, "secret-keys"))
	sh := &shell{Stage: s}
	owner := sh.house(key)
	if sh.err != nil {
		return sh.err
	}
	fmt.Println("$ arbe serve &")
	url, err := s.Serve()
	if err != nil {
		return err
	}
	sh.run()
	token := sh.quiet("arbe", "token", "mint", "--scope", "member", "--agent", owner)
	if sh.err != nil {
		return sh.err
	}
	fmt.Printf("\nThe owner's page: %s/login#%s\n", url, token)
	if stay {
		fmt.Println("It stays until Ctrl-C.")
		<-ctx.Done()
	}
	return nil
}

// startPostgres starts a Postgres for the demo and returns the address of an empty database.
func startPostgres(ctx context.Context, s *stage.Stage) (url string, err error) {
	programs, err := postgres.Find()
	if err != nil {
		return "", err
	}
	server, err := postgres.Start(programs)
	if err != nil {
		return "", err
	}
	s.AtEnd(server.Stop)
	if err := server.Template(ctx, nil); err != nil {
		return "", err
	}
	return server.New(ctx, "arbe")
}

// shell shows commands and what they print. After the first error it does nothing.
type shell struct {
	*stage.Stage
	err error
}

// quiet runs a command without showing it.
func (s *shell) quiet(name string, args ...string) (out string) {
	if s.err == nil {
		out, s.err = s.Output(name, args...)
	}
	return out
}

// show runs a command and shows it with what it prints.
func (s *shell) show(input string, args ...string) (out string) {
	if s.err != nil {
		return ""
	}
	words := make([]string, len(args))
	for i, arg := range args {
		if words[i] = arg; strings.Contains(arg, " ") {
			words[i] = fmt.Sprintf("%q", arg)
		}
	}
	fmt.Print("$ arbe " + strings.Join(words, " "))
	cmd := s.Command("arbe", args...)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
		fmt.Print(" < value")
	}
	fmt.Println()
	if out, s.err = stage.Output(cmd); out != "" {
		fmt.Println(out)
	}
	return out
}

// house makes the house, whose secret is the key of the model, and returns its owner.
func (s *shell) house(key string) (owner string) {
	s.show("", "db", "migrate")
	owner = s.show("", "agent", "create", "--kind", "human", "Ann")
	s.show("", "agent", "create", "--kind", "bot", "--runtime", "pi", "Piet")
	house := s.show("", "house", "create", "Workshop", "--owner", "Ann")
	fmt.Println("$ export ARBE_HOUSE=" + house)
	s.Env = append(s.Env, "ARBE_HOUSE="+house)
	s.show("", "member", "add", "Piet")
	s.show("", "secret", "key", "new", "secret-keys")
	s.show(key, "secret", "set", agents.KeyVar)
	return owner
}

// run runs the bot once, and shows the rows of the house.
func (s *shell) run() {
	s.show("", "env", "create", "base", "--runtime", "local", "--secret", agents.KeyVar)
	s.show("", "env", "default", "base")
	thread := s.show("", "thread", "new", "--agent", "Piet", "--name", "Haiku", "--tag", "demo")
	if s.err != nil {
		return
	}
	fmt.Printf("$ arbe run --thread %s -- %q\n", thread, stage.Task)
	args := []string{"run", "--thread", thread}
	for _, name := range []string{"models.json", "settings.json"} { // of the scripted model
		args = append(args, "--file", filepath.Join(s.Dir, ".pi", "agent", name)+":.pi/agent/"+name)
	}
	run := s.Command("arbe", append(args, "--", stage.Task)...)
	run.Stdout, run.Stderr = os.Stdout, os.Stderr
	if err := run.Run(); err != nil {
		s.err = fmt.Errorf("arbe run: %w", err)
	}
	s.show("", "house", "show", "Workshop")
	s.show("", "member", "list")
	s.show("", "env", "list")
	s.show("", "secret", "list")
	s.show("", "ls")
}
