package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"arbe.0sk.ar/runner/internal/test/agents"
	"arbe.0sk.ar/runner/internal/test/postgres"
)

// PlayHouse is the main function of a demo of a house, whose command has a name: play shows it, and returns the URL of
// the server. It does not return.
func PlayHouse(name string, play func(sh *Shell, owner string) (url string)) {
	stay := flag.Bool("stay", false, "keep the server until Ctrl-C")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintf(os.Stderr, "usage: %s [-stay] BIN: the folder that has arbe and arbe-pi-runner\n", name)
		os.Exit(64)
	}
	os.Exit(Main(func(ctx context.Context, bin string) (err error) {
		s, err := New(ctx, bin)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		sh, owner, err := s.House()
		if err != nil {
			return err
		}
		sh.Page(play(sh, owner), owner, *stay)
		return sh.Err
	}, flag.Arg(0)))
}

// House makes a house on a Postgres of its own: the human Ann owns it, and its secret is the key of the model, which no
// command has in its environment from now on. It returns Ann's id.
func (s *Stage) House() (sh *Shell, owner string, err error) {
	database, err := s.startPostgres()
	if err != nil {
		return nil, "", err
	}
	key := ""
	s.Env = slices.DeleteFunc(s.Env, func(v string) bool {
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
	sh = &Shell{Stage: s}
	sh.Show("", "db", "migrate")
	owner = sh.Show("", "agent", "create", "--kind", "human", "Ann")
	house := sh.Show("", "house", "create", "Workshop", "--owner", "Ann")
	fmt.Println("$ export ARBE_HOUSE=" + house)
	s.Env = append(s.Env, "ARBE_HOUSE="+house)
	sh.Show("", "secret", "key", "new", "secret-keys")
	sh.Show(key, "secret", "set", agents.KeyVar)
	return sh, owner, sh.Err
}

// Bot makes a bot that runs on pi, a member of the house that answers by the scripted model.
func (s *Shell) Bot(name string) {
	s.Show("", "agent", "create", "--kind", "bot", "--runtime", "pi", name)
	s.Show("", "member", "add", name)
	s.Show("", "agent", "set", name, "--model", "scripted/scripted-1")
}

// Dispatch serves with bots that answer, and returns the server's URL.
func (s *Shell) Dispatch(flags ...string) (url string) {
	if s.Err != nil {
		return ""
	}
	flags = append(flags, "--dispatch", "--model-url", "scripted="+s.Model+"/v1")
	fmt.Println("$ arbe serve", strings.Join(flags, " "), "&")
	url, s.Err = s.Serve(flags...)
	return url
}

// Start starts a command that runs until the end. Of its arguments hidden ones are not shown.
func (s *Shell) Start(shown []string, hidden ...string) {
	if s.Err != nil {
		return
	}
	fmt.Println("$ arbe", typed(shown), "&")
	cmd := s.Command("arbe", slices.Concat(shown, hidden)...)
	if s.Err = cmd.Start(); s.Err == nil {
		s.AtEnd(func() error { return End(cmd) })
	}
}

// Await waits until a thread's entries have all of some texts.
func (s *Shell) Await(thread string, texts ...string) {
	limit := time.Now().Add(2 * time.Minute)
	for s.Err == nil {
		all := s.Quiet("arbe", "thread", "read", thread)
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) }) {
			return
		}
		if time.Now().After(limit) {
			s.Err = fmt.Errorf("thread %s has not all of %q", thread, texts)
		}
		select {
		case <-s.ctx.Done():
			s.Err = s.ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Page prints the owner's page, and waits for the end where it is to stay.
func (s *Shell) Page(url, owner string, stay bool) {
	token := s.Quiet("arbe", "token", "mint", "--scope", "member", "--agent", owner)
	if s.Err != nil {
		return
	}
	fmt.Printf("\nThe owner's page: %s/login#%s\n", url, token)
	if stay {
		fmt.Println("It stays until Ctrl-C.")
		<-s.ctx.Done()
	}
}

// startPostgres starts a Postgres and returns the address of an empty database.
func (s *Stage) startPostgres() (url string, err error) {
	programs, err := postgres.Find()
	if err != nil {
		return "", err
	}
	server, err := postgres.Start(programs)
	if err != nil {
		return "", err
	}
	s.AtEnd(server.Stop)
	if err := server.Template(s.ctx, nil); err != nil {
		return "", err
	}
	return server.New(s.ctx, "arbe")
}

// Shell shows commands of a house and what they print. After the first error it does nothing.
type Shell struct {
	*Stage
	Err error
}

// Quiet runs a command without showing it.
func (s *Shell) Quiet(name string, args ...string) (out string) {
	if s.Err == nil {
		out, s.Err = s.Output(name, args...)
	}
	return out
}

// Show runs a command and shows it with what it prints.
func (s *Shell) Show(input string, args ...string) (out string) {
	if s.Err != nil {
		return ""
	}
	fmt.Print("$ arbe " + typed(args))
	cmd := s.Command("arbe", args...)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
		fmt.Print(" < value")
	}
	fmt.Println()
	if out, s.Err = Output(cmd); out != "" {
		fmt.Println(out)
	}
	return out
}

// Run runs a command, and shows it with its output as it comes. Of its arguments hidden ones are not shown.
func (s *Shell) Run(shown []string, hidden ...string) {
	if s.Err != nil {
		return
	}
	fmt.Println("$ arbe " + typed(shown))
	cmd := s.Command("arbe", slices.Concat(shown[:1], hidden, shown[1:])...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		s.Err = fmt.Errorf("arbe %s: %w", shown[0], err)
	}
}

// PiFiles are the flags that give a box the configuration of the scripted model for pi.
func (s *Stage) PiFiles() (flags []string) {
	for _, name := range []string{"models.json", "settings.json"} {
		flags = append(flags, "--file", filepath.Join(s.Dir, ".pi", "agent", name)+":.pi/agent/"+name)
	}
	return flags
}

// typed returns arguments as a person types them.
func typed(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		if words[i] = arg; strings.Contains(arg, " ") {
			words[i] = fmt.Sprintf("%q", arg)
		}
	}
	return strings.Join(words, " ")
}
